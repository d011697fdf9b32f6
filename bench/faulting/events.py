"""What processes of a job have said (faults_rank.py), and the figures that follow from it.

Events are dictionaries with slot, pid, event and at; "first" has size and rank, too."""

FIGURES = ("error", "next step", "taken in", "standstill", "back", "ended")


def firsts(events, since, size):
    """Returns {slot: the first event "first" of a slot with so many ranks after that time}."""
    found = {}
    for event in events:
        if event["event"] == "first" and event["at"] > since and event["size"] == size:
            found.setdefault(event["slot"], event)
    return found


def last_steps(events):
    """Returns {slot: its newest event "first"}."""
    return {event["slot"]: event for event in events if event["event"] == "first"}


def slot_of_rank(events, rank):
    """Returns the slot whose process has the rank now."""
    return next(slot for slot, event in last_steps(events).items() if event["rank"] == rank)


def have_gone_on(events, others, since):
    """Returns whether each of these slots has made a step after an error after that time."""
    failed, gone_on = set(), set()
    for event in events:
        if event["at"] <= since:
            continue
        if event["event"] == "error":
            failed.add(event["slot"])
        if event["event"] == "first" and event["slot"] in failed:
            gone_on.add(event["slot"])
    return others <= gone_on


def figures_of(events, gone, begun_at, size, healed_at=None):
    """Returns the figures of a fault that began then and hit these slots, once all ranks are together again."""
    after = [event for event in events if event["at"] > begun_at]
    others = [event for event in after if event["slot"] not in gone]
    errors, steps = {}, {}
    for event in others:
        if event["event"] == "error":
            errors.setdefault(event["slot"], event["at"])
        if event["event"] == "first" and event["slot"] in errors and event["size"] < size:
            steps.setdefault(event["slot"], event["at"])
    before = {slot: event["pid"] for slot, event in last_steps([event for event in events if event["at"] <= begun_at]).items()}
    ended = {slot for slot, event in last_steps(events).items() if event["pid"] != before[slot]}
    newborn = min((event["at"] for event in after if event["slot"] in ended and event["event"] == "init"), default=None)
    whole = max(event["at"] for event in firsts(after, healed_at or newborn or begun_at, size).values())
    figures = {"error": max(errors.values()) - begun_at, "back": whole - (healed_at or begun_at)}
    if steps:
        figures["next step"] = max(steps.values()) - max(errors.values())
    if newborn is not None and len(ended) == 1:
        figures["taken in"] = whole - newborn
        left = [event["at"] for event in others if event["event"] == "leave" and event["at"] > newborn]
        if left:
            figures["standstill"] = whole - min(left)
    return figures, ended


def quantile(values, part):
    """Returns the smallest value that is no less than this part of all."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * part // 100) - 1)]


def cell(name, values):
    if not values:
        return "-"
    if name == "ended":
        return str(max(values))
    return f"{quantile(values, 50):.3f} s ({quantile(values, 99):.3f})"


def row(label, found):
    """Returns a line of the table: {figure: its values}, or a sentence in place of them."""
    if isinstance(found, str):
        return f"| {label} | {found} |" + " |" * (len(FIGURES) - 1)
    count = max(len(values) for values in found.values())
    return f"| {label}, {count} faults | " + " | ".join(cell(name, found.get(name, [])) for name in FIGURES) + " |"


def head():
    return "| | " + " | ".join(FIGURES) + " |\n" + "|---" * (len(FIGURES) + 1) + "|"
