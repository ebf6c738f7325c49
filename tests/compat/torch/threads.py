"""Several Python threads with streams of their own."""

import threading

import torch

torch.cuda.init()
results = {}


def work(number: int) -> None:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        here = torch.full((10_000,), float(number))
        there = here.pin_memory().to("cuda", non_blocking=True)
        back = there.clone().to("cpu")
        stream.synchronize()
    results[number] = bool((back == number).all())


threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert results == dict.fromkeys(range(4), True)
