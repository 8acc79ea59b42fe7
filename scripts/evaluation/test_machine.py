"""What benchmarks say of the machine, and what the documents say of machines."""

import contextlib
import io
import json
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.append(str(ROOT / "scripts"))
import machine  # noqa: E402

MACHINES = ROOT / "docs" / "machines"


def ratios(name):
    return [json.loads(path.read_text())["cpu_ratios"][name] for path in MACHINES.glob("*.json")
            if not path.stem.endswith("-kinds")]


class MachineTest(unittest.TestCase):
    def test_a_level_needs_all_that_is_below_it(self):
        narrow, wide = machine.LEVELS["avx2"], " ".join(machine.LEVELS.values())
        for flags, level in [("", "scalar"), (narrow, "avx2"), (wide, "avx512"),
                             (machine.LEVELS["avx512"], "scalar")]:
            self.assertEqual(machine.kernel_level({"flags": flags}, "x86_64", ""), level)
            self.assertEqual(machine.kernel_level({"flags": flags}, "x86_64", "scalar"), "scalar")
        self.assertEqual(machine.kernel_level({"flags": narrow}, "x86_64", "avx512"), "avx2")
        self.assertEqual(machine.kernel_level({}, "aarch64", ""), "neon")

    def test_features_are_those_that_the_kernels_ask_for(self):
        source = (ROOT / "crates/ops/src/kernels.rs").read_text()
        asked = set(part.split('"')[0] for part in source.split('is_x86_feature_detected!("')[1:])
        linux = {"lzcnt": "abm", "avx512vbmi2": "avx512_vbmi2", "avx512vnni": "avx512_vnni"}
        named = set(" ".join(machine.LEVELS.values()).split())
        self.assertEqual({linux.get(name, name) for name in asked}, named)

    def test_this_machine_has_a_head_and_a_name(self):
        here = machine.machine()
        self.assertIn(f"kernels {here['kernels']}", machine.head(here))
        self.assertRegex(machine.slug(here), r"^[a-z0-9]+(-[a-z0-9]+)*$")
        if here["clock_ghz"] is not None:
            self.assertTrue(0.1 < here["clock_ghz"] < 10, here)

    def test_the_documents_quote_what_is_kept(self):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            machine.ranges(MACHINES)
        self.assertIn(printed.getvalue(), (ROOT / "docs/measured.md").read_text())
        readme = " ".join((ROOT / "README.md").read_text().split())
        for name in ["index_vs_ljt", "first_epoch_vs_ljt"]:
            known = ratios(name)
            self.assertIn(f"{min(known):.1f} to {max(known):.1f}", readme)


if __name__ == "__main__":
    unittest.main()
