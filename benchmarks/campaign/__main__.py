"""`python -m benchmarks.campaign`."""

from .run import main

main()
