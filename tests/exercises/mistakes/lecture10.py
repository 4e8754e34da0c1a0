"""Wrong answers to the exercises of lecture 10."""

from collections import deque


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


MISTAKES = {
    "10.1": {
        "no wait": ("    stream.synchronize()\n", ""),
        "two waits": ("    context.execute", "    stream.synchronize()\n    context.execute"),
        "not copied": (".copy()", ""),
        "not checked": ("if not context.set_input_shape", "if context.set_input_shape",
            "        raise ValueError(f\"no profile holds {images.shape}\")",
            "        pass\n    else:\n        count = 1", "[:count] = images", "[:count] = images[:count]"),
        "written too early": ("    if not", "    buffers.host_in[:count] = images\n    if not"),
        "engine first": ("    context.execute_async_v3(stream.handle)\n", "",
            "    driver.memcpy_htod", "    context.execute_async_v3(stream.handle)\n    driver.memcpy_htod"),
        "the shape of the buffer": ('"image", images.shape', '"image", (8, 4)'),
        "the whole buffer": ("buffers.host_in[:count], stream", "buffers.host_in[:8], stream"),
        "no engine": ("    context.execute_async_v3(stream.handle)\n", ""),
    },
    "10.2": {
        "buffers forgotten": ("max(copied_in, set_is_free[request % sets])", "copied_in"),
        "in turn": lambda i, c, o, requests, sets: (i + c + o) * requests,
        "without the last copy": ("return copied_out", "return computed"),
        "the slowest unit": lambda i, c, o, requests, sets: max(i, c, o) * requests,
        "always two": ("    copied_in = computed", "    sets = min(sets, 2)\n    copied_in = computed"),
    },
    "10.3": {
        "no limit": ("waiting >= room", "False"),
        "the running one waits": ("start > arrival for", "start + call_ms > arrival for"),
        "waiting time": ("free - arrival", "starts[-1] - arrival"),
        "time of the answer": ("free - arrival", "free"),
        "drop oldest": _drop_oldest,
        "idle and no room": ("free > arrival and ", ""),
        "before the frame": ("max(arrival, free)", "free"),
    },
    "10.4": {
        "no plain run": ("state == warm", "True"),
        "two plain runs": ("captured = [], None, None", "captured, runs = [], None, None, 0",
            "state == warm:", "state == warm and runs > 1:",
            "warm = state", "warm, runs = state, runs + 1 if state == warm else 1"),
        "never replays": ("state == captured", "False"),
        "shape only": ("in states", "in [state[0] for state in states]"),
        "address only": ("in states", "in [state[1] for state in states]"),
        "one plain run for all": ("state == warm", "warm is not None"),
        "forgets": ("None, None", "set(), None", "state == warm", "state in warm", "warm = state", "captured = warm.add(state)"),
        "many graphs": ("None, None", "None, []", "state == captured", "state in captured", "captured = state", "captured.append(state)"),
    },
    "10.5": {
        "no shape": ('    context.set_input_shape("x", x.shape)\n', ""),
        "no address": ('    context.set_tensor_address("y", int(device_y))\n', ""),
        "copied after the run": ("    cuda.memcpy_htod_async(device_x, x, stream)\n", "",
            "    cuda.memcpy_dtoh", "    cuda.memcpy_htod_async(device_x, x, stream)\n    cuda.memcpy_dtoh"),
        "no run": ("    context.execute_async_v3(stream.handle)\n", ""),
        "no copy home": ("    cuda.memcpy_dtoh_async(y, device_y, stream)\n", "", "np.empty_like", "np.zeros_like"),
        "no wait": ("    stream.synchronize()\n", "", "np.empty_like", "np.zeros_like"),
        "a host address": ("int(device_x)", "4096", "int(device_y)", "4096"),
    },
}  # fmt: skip
