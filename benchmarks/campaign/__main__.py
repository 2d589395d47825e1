"""`python -m benchmarks.campaign`."""

from .run import main

if __name__ == "__main__":  # a worker process of a part imports this module too
    main()
