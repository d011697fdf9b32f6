"""Holds cases of torch_rank.py: hvd.elastic, as far as all processes survive, and processes that fork."""

import os

import rueda.torch as hvd
import torch
from torch_support import expect_equal, expect_error, rank_and_size

elastic = hvd.elastic


def make_parts():
    torch.manual_seed(hvd.rank())
    model = torch.nn.Linear(4, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
                                         named_parameters=model.named_parameters())
    return model, optimizer


def train(state, fail_at=()):
    """Trains six batches in each of two epochs; `fail_at` has (rank, batch): that rank fails there, once."""
    left = list(fail_at)

    @elastic.run
    def loop(state):
        while state.epoch < 2:
            while state.batch < 6:
                rows = torch.full((2, 4), 1.0 + hvd.rank() + state.batch)
                state.optimizer.zero_grad()
                state.model(rows).sum().backward()
                if (hvd.rank(), state.batch) in left:
                    left.remove((hvd.rank(), state.batch))
                    raise hvd.HorovodInternalError("made by the test")
                state.optimizer.step()
                state.batch += 1
                if state.batch % 2 == 0:
                    state.commit()
            state.epoch, state.batch = state.epoch + 1, 0
        return state.epoch

    return loop(state)


def case_a_training_loop():
    model, optimizer = make_parts()
    state = elastic.TorchState(model=model, optimizer=optimizer, epoch=0, batch=0)
    assert train(state) == 2
    weights = hvd.allgather_object(model.state_dict())
    assert all(torch.equal(one[key], weights[0][key]) for one in weights for key in one)


def case_it_begins_again_from_the_last_commit():
    rank, size = rank_and_size()
    results = []
    for fail_at in ((), ((size - 1, 3),), ((0, 1), (0, 5), (size // 2, 4))):
        model, optimizer = make_parts()
        torch.manual_seed(9)
        torch.nn.init.normal_(model.weight)
        state = elastic.TorchState(model=model, optimizer=optimizer, epoch=0, batch=0)
        resets = []
        state.register_reset_callbacks([lambda: resets.append(hvd.size())])
        assert train(state, fail_at) == 2
        # Failures at about the same time are one reset.
        assert min(len(fail_at), 1) <= len(resets) <= len(fail_at) and set(resets) <= {size}, resets
        results.append(model.weight.detach().clone())
    for result in results[1:]:
        expect_equal(result, results[0])


def case_mistakes_are_raised():
    rank, size = rank_and_size()
    if size == 1:
        return
    state = elastic.ObjectState(hvd.broadcast_object, hvd.rank, batch=0)

    @elastic.run
    def loop(state):
        hvd.allreduce(torch.ones(2 + rank % 2), name="mistake")

    expect_error(hvd.HorovodInternalError, "shape", loop, state)


def case_resets_are_limited():
    os.environ["HOROVOD_ELASTIC_RESET_LIMIT"] = "2"
    state = elastic.ObjectState(hvd.broadcast_object, hvd.rank, batch=0)

    @elastic.run
    def loop(state):
        raise hvd.HorovodInternalError("always")

    expect_error(RuntimeError, "HOROVOD_ELASTIC_RESET_LIMIT", loop, state)
    del os.environ["HOROVOD_ELASTIC_RESET_LIMIT"]


def case_hosts_that_change():
    rank, _ = rank_and_size()
    calls = []
    state = elastic.ObjectState(hvd.broadcast_object, hvd.rank, batch=0)

    @elastic.run
    def loop(state):
        calls.append(state.batch)
        state.batch += 1
        if len(calls) < 3:
            if rank == 0:
                state.on_hosts_updated(len(calls), len(calls))
            state.commit()
            raise AssertionError("no interrupt came")
        return state.batch

    assert loop(state) == 3 and calls == [0, 1, 2], calls


def case_all_ranks_hear_what_one_has_heard_of_hosts():
    """Rank 0's word alone decided, and where hosts were only removed nobody was made equal, which new ranks would have waited for."""
    rank, size = rank_and_size()
    syncs = []

    class Counting(elastic.ObjectState):

        def sync(self):
            syncs.append(1)
            super().sync()

    state = Counting(hvd.broadcast_object, hvd.rank, batch=0)
    removed = 1

    @elastic.run
    def loop(state):
        state.batch += 1
        if state.batch < 3:
            if rank == size - 1:
                state.on_hosts_updated(100.0 + state.batch, removed)
                state.on_hosts_updated(100.0, removed)
            state.commit()
            raise AssertionError("no interrupt came")
        if rank == 0:
            state.on_hosts_updated(102.0, removed)  # it has heard late of what all have been told
        state.commit()
        return state.batch

    assert loop(state) == 3 and len(syncs) == 3, syncs


def case_the_newest_commit_is_everybodys():
    """A rank that failed before it had committed is behind, also if it is rank 0."""
    rank, size = rank_and_size()
    model = torch.nn.Linear(2, 1)
    torch.nn.init.constant_(model.weight, rank)
    state = elastic.TorchState(model=model, step=0)
    seen = []

    @elastic.run
    def loop(state):
        seen.append((state.step, state.model.weight[0, 0].item()))
        if len(seen) > 1:
            return
        for step in (1, 2):
            state.step = step
            state.commit()
        if rank == size - 1:
            torch.nn.init.constant_(state.model.weight, 50)
            state.step, state.check_host_updates = 3, lambda: None  # the others are not there any more
            state.commit()
            del state.check_host_updates
        raise hvd.HorovodInternalError("made by the test")

    loop(state)
    assert seen == [(0, 0.0), (3, 50.0)], seen
    assert state._commits == 3


def case_objects_are_saved_and_restored():
    rank, size = rank_and_size()
    state = elastic.ObjectState(hvd.broadcast_object, hvd.rank, epoch=rank, history=[rank])
    state.sync()
    assert state.epoch == 0 and state.history == [0]
    state.epoch, state.history[0] = 5, 7
    state.restore()
    assert state.epoch == 0 and state.history == [0]
    state.epoch = 3
    state.save()
    state.epoch = 4
    state.restore()
    assert state.epoch == 3
    model, _ = make_parts()
    torch_state = elastic.TorchState(model=model, sampler=elastic.ElasticSampler(range(10)), epoch=1)
    other, _ = make_parts()
    torch_state.model = other
    torch_state.save()
    kept = other.weight.detach().clone()
    other.weight.data.zero_()
    torch_state.restore()
    expect_equal(other.weight.detach(), kept)


def case_samplers():
    rank, size = rank_and_size()
    sampler = elastic.ElasticSampler(range(10 * size + 1), shuffle=True, seed=3)
    state = elastic.TorchState(sampler=sampler)
    everything = hvd.allgather_object(list(sampler))
    assert {len(part) for part in everything} == {11} and len(sampler) == 11
    assert set().union(*everything) == set(range(10 * size + 1))
    sampler.record_batch(0, 4)
    sampler.record_batch(1, 4)
    state.sync()
    done = set().union(*(part[:8] for part in everything))
    assert sampler.processed_indices == done
    rest = hvd.allgather_object(list(sampler))
    assert set().union(*rest) == set(range(10 * size + 1)) - done
    sampler.set_epoch(1)
    assert sampler.epoch == 1 and len(sampler) == 11
    again = hvd.allgather_object(list(sampler))
    assert size == 1 or again != everything
    in_order = elastic.ElasticSampler(range(2 * size), shuffle=False)
    assert list(in_order) == [rank, rank + size]


def in_child(function):
    """Runs function() in a forked child, and returns its exit status."""
    pid = os.fork()
    if pid == 0:
        status = 9
        try:
            function()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def case_a_forked_child_leaves_its_parent_alone():
    rank, size = rank_and_size()
    model, optimizer = make_parts()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    result = hvd.allreduce(torch.ones(100_000), name="large", op=hvd.Sum)

    def child():
        assert not hvd.is_initialized()
        for call in (hvd.rank, lambda: hvd.allreduce(torch.ones(2)), lambda: hvd.init()):
            expect_error(Exception, "forked", call)
        optimizer.zero_grad()
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad.fill_(float("nan"))
        model(torch.ones(1, 4)).sum().backward()

    assert in_child(child) == 0
    for parameter, gradient in zip(model.parameters(), gradients):
        expect_equal(parameter.grad, gradient)
    expect_equal(result, torch.full((100_000,), float(size)))
    dataset = [torch.full((4,), float(i)) for i in range(8)]
    for _ in range(2):
        for rows in torch.utils.data.DataLoader(dataset, batch_size=2, num_workers=2):
            optimizer.zero_grad()
            model(rows).sum().backward()
            optimizer.step()
    weights = hvd.allgather_object(model.state_dict())
    assert all(torch.equal(one[key], weights[0][key]) for one in weights for key in one)
