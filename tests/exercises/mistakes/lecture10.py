"""Wrong answers to the exercises of lecture 10."""

from __future__ import annotations

from collections import deque

import numpy as np


def _request(
    checked=True,
    first="copy",
    wait="end",
    result=np.copy,
    shape=lambda images: images.shape,
    copied=None,
    run=True,
    early=False,
):
    def run_request(context, driver, stream, buffers, images):
        count = len(images)
        if early:
            buffers.host_in[:count] = images
        accepted = context.set_input_shape("image", shape(images))
        if checked and not accepted:
            raise ValueError("rejected")
        if not accepted:
            count = 1
        buffers.host_in[:count] = images[:count]
        if run and first == "engine":
            context.execute_async_v3(stream.handle)
        driver.memcpy_htod_async(buffers.device_in, buffers.host_in[: copied or count], stream)
        if wait == "always":
            stream.synchronize()
        if run and first == "copy":
            context.execute_async_v3(stream.handle)
        driver.memcpy_dtoh_async(buffers.host_out, buffers.device_out, stream)
        if wait in ("end", "always"):
            stream.synchronize()
        return result(buffers.host_out[:count])

    return run_request


def _schedule(copy_in, compute, copy_out, requests, sets, result=lambda i, c, o: o):
    i = c = o = 0
    free = []
    for request in range(requests):
        i = max(i, free[request - sets] if request >= sets else 0) + copy_in
        c = max(c, i) + compute
        o = max(o, c) + copy_out
        free.append(o)
    return result(i, c, o)


def _queue(arrivals, call, room, result=lambda start, arrival, call: start + call - arrival, running=0, idle=True, late=False):
    free, starts, found = 0, [], []
    for arrival in arrivals:
        waiting = sum(start + running * call > arrival for start in starts)
        if (not idle or free > arrival) and waiting >= room:
            found.append(-1)
            continue
        start = free if late else max(arrival, free)
        starts.append(start)
        free = start + call
        found.append(result(start, arrival, call))
    return found


def _drop_oldest(arrivals, call, room):
    latencies, waiting, free = [-1] * len(arrivals), deque(), 0
    for index, now in [*enumerate(arrivals), (None, float("inf"))]:
        while waiting and free <= now:
            first = waiting.popleft()
            free = max(free, arrivals[first]) + call
            latencies[first] = free - arrivals[first]
        if index is None:
            break
        if free <= now:
            free = now + call
            latencies[index] = call
        else:
            waiting.append(index)
            if len(waiting) > room:
                waiting.popleft()
    return latencies


def _graph(key=lambda state: state, plain=1, many=False, forgets=False, replays=True, warm_once=False):
    def graph_steps(states):
        steps, seen, captured = [], {}, set()
        last = None
        for state in map(key, states):
            if forgets and state != last and state not in captured:
                captured.clear()
            last = state
            if state in captured and replays:
                steps.append("replay")
            elif seen.get(state, 0) >= plain or (warm_once and sum(seen.values()) >= plain):
                steps.append("capture")
                captured = {*captured, state} if many else {state}
                seen = seen if many else {}
                seen[state] = plain
            else:
                steps.append("plain")
                seen[state] = seen.get(state, 0) + 1
        return steps

    return graph_steps


def _raw(shape=True, addresses=("x", "y"), before=True, run=True, home=True, wait=True, pointer=int):
    def one_answer(trt, cuda, plan, x):
        engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(plan)
        context, stream, y = engine.create_execution_context(), cuda.Stream(), np.zeros_like(x)
        memory = {"x": cuda.mem_alloc(x.nbytes), "y": cuda.mem_alloc(y.nbytes)}
        if shape:
            context.set_input_shape("x", x.shape)
        for name in addresses:
            context.set_tensor_address(name, pointer(memory[name]))
        if before:
            cuda.memcpy_htod_async(memory["x"], x, stream)
        if run:
            context.execute_async_v3(stream.handle)
        if not before:
            cuda.memcpy_htod_async(memory["x"], x, stream)
        if home:
            cuda.memcpy_dtoh_async(y, memory["y"], stream)
        if wait:
            stream.synchronize()
        return y

    return one_answer


MISTAKES = {
    "10.1": {
        "no wait": _request(wait="never"),
        "two waits": _request(wait="always"),
        "not copied": _request(result=lambda rows: rows),
        "not checked": _request(checked=False),
        "written too early": _request(early=True),
        "engine first": _request(first="engine"),
        "the shape of the buffer": _request(shape=lambda images: (8, 4)),
        "the whole buffer": _request(copied=8),
        "no engine": _request(run=False),
    },
    "10.2": {
        "buffers forgotten": lambda i, c, o, requests, sets: _schedule(i, c, o, requests, requests),
        "in turn": lambda i, c, o, requests, sets: (i + c + o) * requests,
        "without the last copy": lambda *given: _schedule(*given, result=lambda i, c, o: c),
        "the slowest unit": lambda i, c, o, requests, sets: max(i, c, o) * requests,
        "always two": lambda i, c, o, requests, sets: _schedule(i, c, o, requests, 2 if sets > 1 else 1),
    },
    "10.3": {
        "no limit": lambda arrivals, call, room: _queue(arrivals, call, 99),
        "the running one waits": lambda *given: _queue(*given, running=1),
        "waiting time": lambda *given: _queue(*given, result=lambda start, arrival, call: start - arrival),
        "time of the answer": lambda *given: _queue(*given, result=lambda start, arrival, call: start + call),
        "drop oldest": _drop_oldest,
        "idle and no room": lambda *given: _queue(*given, idle=False),
        "before the frame": lambda *given: _queue(*given, late=True),
    },
    "10.4": {
        "no plain run": _graph(plain=0),
        "two plain runs": _graph(plain=2),
        "never replays": _graph(replays=False),
        "shape only": _graph(key=lambda state: state[0]),
        "address only": _graph(key=lambda state: state[1]),
        "one plain run for all": _graph(warm_once=True),
        "forgets": _graph(forgets=True),
        "many graphs": _graph(many=True),
    },
    "10.5": {
        "no shape": _raw(shape=False),
        "no address": _raw(addresses=("x",)),
        "copied after the run": _raw(before=False),
        "no run": _raw(run=False),
        "no copy home": _raw(home=False),
        "no wait": _raw(wait=False),
        "a host address": _raw(pointer=lambda memory: 4096),
    },
}
