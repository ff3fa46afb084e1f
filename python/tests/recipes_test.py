"""The recipes of docs/recipes.md, as they stand there: asked to go, they save, leave with 143, and go on with other sizes.

The packages themselves are not in Debian: small stand-ins have what the recipes call of them. Where
Accelerate is installed, its recipe runs with it, too.
"""
import importlib.util
import os
import re
import signal
import textwrap
import unittest

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # they are about the CPU, also where there is a GPU

import testing
from group_test import GroupCase

PAGE = os.path.join(os.path.dirname(testing.LIBRARY), "docs", "recipes.md")

COMMON = '''
import json, os, sys, types
import torch
import torch.distributed as dist
from testing import pause

def provide(name, **contents):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__dict__.update(contents)

def check_draft(path):
    """Only what is renamed to its name travels to other machines (docs/checkpoints.md)."""
    names = os.path.relpath(path, os.environ["ADAPTDL_CHECKPOINT_PATH"]).split("/")
    assert names[0].startswith(("_", ".")) or names[0].endswith(".tmp"), path

def slow():
    print("step", flush=True)
    pause(0.02)

torch.manual_seed(4)
inputs = torch.randn(1280, 3, dtype=torch.float64)
dataset = torch.utils.data.TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
model = torch.nn.Linear(3, 1).double()
'''

ACCELERATE = COMMON + '''
class Accelerator:
    device = "cpu"

    def prepare(self, model, *others):
        self._things = (torch.nn.parallel.DistributedDataParallel(model), *others)
        return self._things

    def backward(self, loss):
        loss.backward()
        slow()

    def save_state(self, folder):
        check_draft(folder)
        if dist.get_rank() == 0:
            os.makedirs(folder, exist_ok=True)
            torch.save([thing.state_dict() for thing in self._things], os.path.join(folder, "things"))
        dist.barrier()

    def load_state(self, folder):
        for thing, state in zip(self._things, torch.load(os.path.join(folder, "things"))):
            thing.load_state_dict(state)

provide("accelerate", Accelerator=Accelerator)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
loss_fn = torch.nn.functional.mse_loss
'''

TRAINER = COMMON + '''
class Trainer:
    """Forty steps, each of which is one in a list."""

    def __init__(self, model, arguments, train_dataset, callbacks):
        self.folder, self.callback = arguments, callbacks[0]

    def train(self, resume_from_checkpoint):
        steps = json.load(open(os.path.join(resume_from_checkpoint, "steps"))) if resume_from_checkpoint else []
        dist.init_process_group("gloo")
        control = types.SimpleNamespace(should_save=False, should_training_stop=False)
        while len(steps) < 40 and not control.should_training_stop:
            steps.append(len(steps))
            slow()
            self.callback.on_step_end(None, None, control)
            if control.should_save and dist.get_rank() == 0:
                check_draft(self.folder)
                os.makedirs(os.path.join(self.folder, f"checkpoint-{len(steps)}"))
                json.dump(steps, open(os.path.join(self.folder, f"checkpoint-{len(steps)}", "steps"), "w"))
            if control.should_save:
                self.callback.on_save(None, types.SimpleNamespace(global_step=len(steps)), control)
            control.should_save = False
        dist.barrier()
        weights[:] = steps

weights = []
def get_last_checkpoint(folder):
    names = [name for name in os.listdir(folder) if name.startswith("checkpoint-")] if os.path.isdir(folder) else []
    return os.path.join(folder, max(names, key=lambda name: int(name.split("-")[1]))) if names else None

provide("transformers", Trainer=Trainer, TrainerCallback=object, TrainingArguments=lambda folder, **_: folder)
provide("transformers.trainer_utils", get_last_checkpoint=get_last_checkpoint)
'''

LIGHTNING = COMMON + '''
class Trainer:
    def __init__(self, max_epochs, callbacks, num_nodes, devices):
        self.callback, self.should_stop, self.steps = callbacks[0], False, []

    def save_checkpoint(self, path):
        check_draft(path)
        if dist.get_rank() == 0:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            json.dump(self.steps, open(path, "w"))
        dist.barrier()

    def fit(self, model, loader, ckpt_path):
        self.steps = json.load(open(ckpt_path)) if ckpt_path else []
        dist.init_process_group("gloo")
        while len(self.steps) < 40 and not self.should_stop:
            self.steps.append(len(self.steps))
            slow()
            self.callback.on_train_batch_end(self, model, None, None, 0)
        weights[:] = self.steps

weights, loader = [], None
provide("lightning", Trainer=Trainer, Callback=object)
'''


REAL_ACCELERATE = COMMON + '''
import accelerate
os.environ["ACCELERATE_USE_CPU"] = "true"
real_backward = accelerate.Accelerator.backward

def backward(self, loss, **options):
    real_backward(self, loss, **options)
    slow()

accelerate.Accelerator.backward = backward
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
loss_fn = torch.nn.functional.mse_loss
'''

def recipe(title):
    with open(PAGE, encoding="utf-8") as file:
        section = file.read().split(f"## {title}\n")[1].split("\n## ")[0]
    return re.search(r"```python\n(.*?)```", section, re.S).group(1)


class Recipes(GroupCase):
    def variables(self, replicas):
        return {"LOCAL_WORLD_SIZE": str(replicas), "GROUP_RANK": "0", "TORCHELASTIC_RUN_ID": "recipes"}

    def start(self, folder, replicas, generation):
        return testing.start_group(self.script, replicas, folder, generation, variables=self.variables(replicas))

    def play(self, before, title, after):
        self.script = os.path.join(self.folder.name, f"{title}.py")
        with open(self.script, "w", encoding="utf-8") as file:
            file.write(before + recipe(title) + textwrap.dedent(after))
        plain, folder = self.fresh("plain"), self.fresh("elastic")
        self.assertEqual(self.finish(self.start(plain, 1, 0)), [0], testing.output(plain, 0, 0))
        for generation, replicas in enumerate((2, 3)):
            processes = self.start_held(replicas, folder, generation, self.script, (), **self.variables(replicas))
            self.wait_for(processes, folder, generation, 3 * "step\n")  # by then all have asked once
            processes[-1].send_signal(signal.SIGTERM)
            self.let_go(folder)
            self.assertEqual(self.finish(processes), [143] * replicas, testing.output(folder, generation, 0))
        codes = self.finish(self.start(folder, 2, 2))
        self.assertEqual(codes, [0, 0], testing.output(folder, 2, 0))
        self.assert_close(self.weights(plain, 0), self.weights(folder, 2))

    def test_accelerate(self):
        self.play(ACCELERATE, "Accelerate", """
            if env.rank() == 0:
                print("weights", json.dumps(model.module.weight.flatten().tolist()))
            """)

    def test_hugging_face_trainer(self):
        self.play(TRAINER, "Hugging Face Trainer", 'print("weights", json.dumps(weights))')

    def test_lightning(self):
        self.play(LIGHTNING, "Lightning", 'print("weights", json.dumps(weights))')

    @unittest.skipUnless(importlib.util.find_spec("accelerate"), "needs the package")
    def test_accelerate_itself(self):
        self.play(REAL_ACCELERATE, "Accelerate", """
            if env.rank() == 0:
                print("weights", json.dumps(accelerator.unwrap_model(model).weight.flatten().tolist()))
            """)


del GroupCase
if __name__ == "__main__":
    unittest.main()
