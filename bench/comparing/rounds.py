"""Runs alternating rounds, and sums them up."""

import statistics

from .machine import NOISE_LIMIT_CORES, NoiseMeter, hogs


def measure_quietly(side, work, network, repeats, log, meter_type=NoiseMeter):
    """Measures, and repeats a disturbed run a few times. The result says so if the machine was never quiet."""
    for attempt in range(repeats + 1):
        meter = meter_type()
        with hogs(work.hogs):
            results = side.measure(work, network)
        noise = meter.cores()
        disturbed = noise > NOISE_LIMIT_CORES
        times = [result["time_us"] for result in results if result.get("time_us") is not None]
        log(f"  {side.name}: " + ", ".join(f"{time:.0f} us" for time in times) +
            f" (noise {noise:.2f} cores{', disturbed' if disturbed else ''})")
        if not disturbed:
            break
    return {"results": results, "noise_cores": noise, "disturbed": disturbed, "attempts": attempt + 1}


def run_rounds(sides, work, network, rounds, repeats, log):
    """Returns a list of rounds, each {side name: measure_quietly's dict}. Every other round runs backwards."""
    done = []
    for number in range(rounds):
        log(f"round {number + 1} of {rounds}")
        order = sides if number % 2 == 0 else list(reversed(sides))
        done.append({side.name: measure_quietly(side, work, network, repeats, log) for side in order})
    return done


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)} if values else None


def summarize(rounds, sizes, ours, others):
    """Returns one dict a size: the median and range of each side's numbers, and of its time over Rueda's, round by round."""
    rows = []
    for i, size in enumerate(sizes):
        def values(name, key):
            found = [one[name]["results"][i].get(key) for one in rounds]
            return [value for value in found if value is not None]

        row = {"bytes": size, "sides": {}, "ratios": {}}
        for name in [ours, *others]:
            row["sides"][name] = {
                key: spread(values(name, key))
                for key in ("time_us", "cpu_s_per_GB", "busbw_GBps", "order_messages_per_step")}
        for name in others:
            row["ratios"][name] = spread([b / a for a, b in zip(values(ours, "time_us"), values(name, "time_us"))])
        rows.append(row)
    return rows
