"""`python -m limbeck` and `torchrun -m limbeck`."""

from limbeck.cli.main import main

if __name__ == "__main__":
    main()
