"""Write all pages and parts of pages that are made from code and results: `python -m tools` in `docs`."""

from pathlib import Path

from . import api, benchmarks, commands, guide, reliability, results

for made in (api, commands, results, guide, benchmarks, reliability):
    made.write(Path(__file__).parent.parent)
