"""A pool of devices that come and go."""

import os
from collections.abc import Sequence

from ._errors import OptionsError


class Pool:
    """Devices that come and go while an epoch runs.

        pool = bothends.Pool(file="/srv/agents", via="tcp+noise")
        loader = bothends.Loader("/data/train", "imagenet-train", csds=pool, key_file="shared.key")

    A source says which members there are: give exactly one of `members`, `file`, `dns` and
    `registry`. The loader attaches members that appear and drops those that vanish, even in the
    middle of an epoch. The stream is the same whichever members take part.

    Args:
        members: addresses, or "HOST:PORT" that are reached as `via` says.
        file: path of a file with one member per line. It is read again when it changes; replace it
            as a whole (`os.replace`).
        dns: "HOST:PORT"; all addresses of the name are members, at this port. It is looked up again
            every two seconds.
        registry: agents to which members announce themselves (`bothends-agent --announce`), as `members`.
            They are asked every second.
        via: how members without a scheme, and registries, are reached: "tcp" (on this machine, unless
            `insecure`), "tcp+noise" or "tls".
        max: members that this loader attaches at most (64 if not given).
    """

    def __init__(
        self,
        members: Sequence[str] | None = None,
        *,
        file: str | os.PathLike[str] | None = None,
        dns: str | None = None,
        registry: Sequence[str] | None = None,
        via: str = "tcp",
        max: int | None = None,
    ) -> None:
        given = [source for source in (members, file, dns, registry) if source is not None]
        if len(given) != 1:
            raise OptionsError("a pool has one source; give members, file, dns or registry")
        for name, listed in (("members", members), ("registry", registry)):
            if isinstance(listed, str):
                raise OptionsError(f"`{name}` is a string; give a list of addresses")
        if members is not None:
            self._text = "pool://" + ",".join(members)
        elif registry is not None:
            self._text = "pool+registry://" + ",".join(registry)
        elif file is not None:
            path = os.path.abspath(os.fspath(file))
            if "?" in path:
                raise OptionsError(f"`file` has a `?` in its name: {path}; rename it")
            self._text = "pool+file://" + path
        else:
            self._text = f"pool+dns://{dns}"
        self._text += f"?via={via}" + ("" if max is None else f"&max={max}")

    def __str__(self) -> str:
        """The pool as a string, as `--csd` and `csds` accept it."""
        return self._text

    def __repr__(self) -> str:
        return f"<bothends.Pool {self._text}>"
