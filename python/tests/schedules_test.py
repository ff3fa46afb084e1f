"""Schedulers of all kinds go on after a restart as if there had been none."""
import functools
import os
import unittest
import warnings

os.environ["CUDA_VISIBLE_DEVICES"] = ""

import testing
import torch
import torch.distributed as dist
from rubato import checkpoint, collective
from rubato.torch import AdaptiveDataLoader, AdaptiveDataParallel, init_process_group
from torch.optim import lr_scheduler as of_torch

BEFORE, AFTER = 4, 6


class WarmUp(of_torch.StepLR.__mro__[1]):  # the base class has had two names
    """As packages of others have it: another scheduler inside, which its state has as an object."""

    def __init__(self, optimizer, epochs, then):
        self.epochs, self.then = epochs, then
        super().__init__(optimizer)

    def get_lr(self):
        if self.last_epoch >= self.epochs:
            return self.then.get_last_lr()
        return [rate * (self.last_epoch + 1) / self.epochs for rate in self.base_lrs]

    def step(self, epoch=None):
        if self.last_epoch >= self.epochs:
            self.then.step()
        super().step(epoch)


class HasAnOdd(of_torch.ExponentialLR):
    def __init__(self, optimizer):
        self.odd = object()
        super().__init__(optimizer, 0.9)


def halved(count):
    return 0.5**count


class ByObject:
    def __init__(self):
        self.factor = 0.9

    def __call__(self, count):
        return self.factor**count


KINDS = {
    "Lambda": lambda o: of_torch.LambdaLR(o, lambda count: 0.9**count),
    "LambdaOfObject": lambda o: of_torch.LambdaLR(o, ByObject()),
    "LambdaOfPartial": lambda o: of_torch.LambdaLR(o, functools.partial(pow, 0.9)),
    "Multiplicative": lambda o: of_torch.MultiplicativeLR(o, lambda count: 0.9),
    "Step": lambda o: of_torch.StepLR(o, 3),
    "MultiStep": lambda o: of_torch.MultiStepLR(o, [2, 5]),
    "Linear": lambda o: of_torch.LinearLR(o, total_iters=8),
    "Exponential": lambda o: of_torch.ExponentialLR(o, 0.9),
    "Polynomial": lambda o: of_torch.PolynomialLR(o, 20),
    "Cosine": lambda o: of_torch.CosineAnnealingLR(o, 20),
    "CosineWithRestarts": lambda o: of_torch.CosineAnnealingWarmRestarts(o, 3),
    "OneCycle": lambda o: of_torch.OneCycleLR(o, 0.5, 20),
    "Cyclic": lambda o: of_torch.CyclicLR(o, 0.01, 0.5, 3, cycle_momentum=False),
    "CyclicOfFunction": lambda o: of_torch.CyclicLR(o, 0.01, 0.5, 3, scale_fn=halved, cycle_momentum=False),
    "Sequential": lambda o: of_torch.SequentialLR(
        o, [of_torch.LinearLR(o, total_iters=2), of_torch.MultiStepLR(o, [2, 3])], [6]),
    "Chained": lambda o: of_torch.ChainedScheduler([of_torch.LinearLR(o), of_torch.ExponentialLR(o, 0.9)]),
    "WarmUp": lambda o: WarmUp(o, 2, of_torch.ExponentialLR(o, 0.5)),
    "Plateau": lambda o: of_torch.ReduceLROnPlateau(o, patience=1),
}


class Schedules(testing.LibraryTest):
    def setUp(self):
        super().setUp()
        init_process_group("gloo")
        self.addCleanup(dist.destroy_process_group)
        self.addCleanup(collective.teardown)

    def live(self, make, steps, then=lambda: None):
        """The learning rates of a life; `then` is called in the loop, at its end."""
        testing.forget()
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        scheduler = make(optimizer)
        net = AdaptiveDataParallel(model, optimizer, scheduler)
        rates = []
        for batch in AdaptiveDataLoader(torch.ones(40, 2), batch_size=2):
            optimizer.zero_grad()
            net(batch).sum().backward()
            optimizer.step()
            scheduler.step(*([1.0] if isinstance(scheduler, of_torch.ReduceLROnPlateau) else []))
            rates.append(optimizer.param_groups[0]["lr"])
            if len(rates) == steps:
                then()
                break
        return rates

    def test_each_kind_goes_on(self):
        for name, make in KINDS.items():
            with self.subTest(name), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # PyTorch warns of what its own SequentialLR does
                os.environ["ADAPTDL_CHECKPOINT_PATH"] = os.path.join(self.folder.name, name)
                whole = self.live(make, BEFORE + AFTER)
                self.live(make, BEFORE, checkpoint.save_all_states)
                self.assertEqual(self.live(make, AFTER), whole[BEFORE:])

    def test_what_cannot_be_saved_is_named_and_does_not_keep_the_rest_from_being_saved(self):
        whole = self.live(HasAnOdd, BEFORE + AFTER)
        with self.assertWarnsRegex(UserWarning, "HasAnOdd.*odd is a object"):
            self.live(HasAnOdd, BEFORE, checkpoint.save_all_states)
        self.assertEqual(self.live(HasAnOdd, AFTER), whole[BEFORE:])


if __name__ == "__main__":
    unittest.main()
