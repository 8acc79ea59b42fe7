"""`python -m bothends`: the command `bothends`."""

from ._programs import bothends

bothends()
