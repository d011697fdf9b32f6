"""Holds what the cases of torch_rank.py share."""

import re

import rueda.torch as hvd
import torch


def rank_and_size():
    return hvd.rank(), hvd.size()


def expect_equal(found, expected, what=""):
    assert found.dtype == expected.dtype and found.shape == expected.shape, (what, found, expected)
    assert torch.equal(found, expected), (what, found, expected)


def expect_close(found, expected, tolerance, what=""):
    assert found.shape == expected.shape, (what, found, expected)
    assert (found.double() - expected.double()).abs().max().item() <= tolerance, (what, found, expected)


def expect_error(kind, pattern, function, *arguments, **named):
    try:
        function(*arguments, **named)
    except kind as error:
        assert re.search(pattern, str(error)), (pattern, str(error))
        return
    raise AssertionError(f"{function.__name__} raised no {kind}")
