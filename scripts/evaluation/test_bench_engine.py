"""scripts/bench-engine without its programs: what it asks for."""

import json
import unittest
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[1] / "bench-engine"


def bench_engine():
    loader = SourceFileLoader("bench_engine", str(PROGRAM))
    module = module_from_spec(spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


class FewImages(unittest.TestCase):
    def test_no_run_asks_for_larger_batches_than_there_are_images(self):
        """Symptom: --store --limit 16 ends with 1, as a batch of 64 does not fit into 16 samples."""
        module, commands = bench_engine(), []

        def output(command, *_, **__):
            commands.append(list(map(str, command)))
            return json.dumps({"epochs": [{"seconds": 1.0}]})

        module.output = output
        for n_images, expected in [(16, "16"), (500, "64")]:
            work = module.Work.__new__(module.Work)
            work.boxes, work.data, work.store = [{}] * n_images, Path("images"), Path("store")
            commands.clear()
            work.time_from_disk("bothends")
            self.assertEqual(len(commands), 10)
            for command in commands:
                self.assertEqual(command[command.index("--batch-size") + 1], expected)


if __name__ == "__main__":
    unittest.main()
