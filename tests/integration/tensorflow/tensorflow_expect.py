"""Has what the cases of tensorflow_rank.py compare by."""

import numpy as np


def expect(found, wanted, what=""):
    """Raises unless two tensors or arrays have the same shape and values."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    if found.shape != wanted.shape or not np.array_equal(found.astype(np.float64), wanted.astype(np.float64)):
        raise AssertionError(f"{what} {found!r} is not {wanted!r}")


def expect_close(found, wanted, what=""):
    found, wanted = np.asarray(found), np.asarray(wanted)
    if found.shape != wanted.shape or not np.allclose(found, wanted, rtol=1e-6):
        raise AssertionError(f"{what} {found!r} is not close to {wanted!r}")


def expect_error(kind, text, call):
    """Raises unless `call` raises an exception of this kind, in whose message the text is. Returns the message."""
    try:
        call()
    except kind as error:
        if text not in str(error):
            raise AssertionError(f"{text!r} is not in {error}") from error
        return str(error)
    raise AssertionError(f"no {kind} with {text!r} was raised")
