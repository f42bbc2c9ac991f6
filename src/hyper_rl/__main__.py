"""`python -m hyper_rl` is the command `hyper-rl`."""

from __future__ import annotations

import sys

from hyper_rl.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
