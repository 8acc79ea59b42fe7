"""Pools of devices that come and go: what they are called, and that nobody need be there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import bothends
import numpy as np
import pytest

from streams import SMALL


def test_a_pool_is_a_text_as_the_command_line_takes_it(tmp_path: Path) -> None:
    listed = bothends.Pool(["a:1", "tls://b:2"], via="tcp+noise", max=3)
    assert str(listed) == "pool://a:1,tls://b:2?via=tcp+noise&max=3"
    file = bothends.Pool(file=tmp_path / "agents")
    assert str(file) == f"pool+file://{tmp_path}/agents?via=tcp"
    dns = bothends.Pool(dns="agents.svc:7070", via="tls")
    assert str(dns) == "pool+dns://agents.svc:7070?via=tls"
    registry = bothends.Pool(registry=["a:1", "b:1"], via="tls")
    assert str(registry) == "pool+registry://a:1,b:1?via=tls"
    assert repr(dns) == f"<bothends.Pool {dns}>"


def test_a_pool_has_one_source() -> None:
    for wrong in ({}, {"members": ["a:1"], "dns": "b:2"}):
        with pytest.raises(bothends.OptionsError, match="one source"):
            bothends.Pool(**wrong)
    with pytest.raises(bothends.OptionsError, match="list of addresses"):
        bothends.Pool("a:1")
    with pytest.raises(bothends.OptionsError, match="list of addresses"):
        bothends.Pool(registry="a:1")


def test_an_empty_pool_changes_nothing_and_a_wrong_one_is_refused(
    small: Path, tmp_path: Path
) -> None:
    def images(**options: Any) -> Any:
        plain = {"batch_size": 6, "output": "u8", "layout": "nhwc", "framework": "numpy"}
        loader = bothends.Loader(small, SMALL, **plain, **options)
        return np.concatenate([images for images, _ in loader])

    nobody = tmp_path / "agents"
    nobody.write_text("# none yet\n")
    assert np.array_equal(images(), images(csds=bothends.Pool(file=nobody)))
    assert np.array_equal(images(), images(csds=[bothends.Pool(file=nobody)]))
    with pytest.raises(bothends.OptionsError, match="`via=ssh`"):
        images(csds=bothends.Pool(file=nobody, via="ssh"))
