"""The documentation site. `make docs` builds it; nothing is fetched while building or reading."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
os.environ.setdefault("JAX_PLATFORMS", "cpu")  # the same pages on every machine
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # notebooks compile much and compute little
os.environ.setdefault("PYTHONWARNINGS", "ignore::DeprecationWarning")

import acenode  # noqa: E402

project, author, copyright = "acenode", "the acenode authors", "the acenode authors, Apache-2.0"
version = release = acenode.__version__

extensions = ["myst_nb", "tools.maths"]
exclude_patterns = ["_build", "_parts", "tools"]
suppress_warnings = ["mystnb.unknown_mime_type", "ref.python"]  # two modules may have a class of one name
python_maximum_signature_line_length = 72
add_module_names = False
toc_object_entries = False

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "amsmath"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
nb_mime_priority_overrides = [("html", "image/svg+xml", 0)]

html_theme = "furo"
html_title = "acenode"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_use_opensearch = ""
html_theme_options = {"footer_icons": []}
html_math_renderer = "svg"

# Pages and parts of pages that are made from code and results: never edited, never committed. In a process of its own,
# since Sphinx forks and JAX has threads.
subprocess.run([sys.executable, "-m", "tools"], cwd=HERE, check=True)
