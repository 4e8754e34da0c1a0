"""What a decoder computes and reads in one call, and what its cache of keys and values holds, from its published sizes.

Sources: Radford et al., Language Models are Unsupervised Multitask Learners (2019), GPT-2; Touvron et al., LLaMA (2023, arXiv
2302.13971), table 2, and Llama 2 (2023, arXiv 2307.09288), table 1; Grattafiori et al., The Llama 3 Herd of Models (2024, arXiv
2407.21783), table 3; Qwen Team, Qwen2.5 Technical Report (2024, arXiv 2412.15115), table 1.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DecoderSize:
    """The sizes of a decoder-only transformer.

    Attributes:
        layers: transformer blocks. Each has its own keys and values.
        heads, kv_heads: heads of queries, and KV heads. Each of the latter serves ``heads / kv_heads`` of the former.
        head_size: features of one head.
        parameters: weights of the whole network.
        longest: tokens of the longest sequence for which it was made.
    """

    layers: int
    heads: int
    kv_heads: int
    head_size: int
    parameters: float
    longest: int

    def cache_bytes(self, tokens: int, *, bytes_per_number: float = 2) -> float:
        """Bytes of the keys and values of `tokens` tokens; a number has 2 bytes in FP16."""
        return 2 * self.layers * self.kv_heads * self.head_size * tokens * bytes_per_number

    def operations(self, new: int, cached: int = 0, *, batch: int = 1) -> float:
        """Multiplications and additions of one call: `new` tokens in each sequence of the batch, after `cached` earlier ones.

        Each weight is multiplied once per token. Each new token also multiplies its queries with the keys of all tokens up to
        itself, and the weights that result with their values.
        """
        pairs = new * cached + new * (new + 1) / 2
        attention = 4 * self.layers * self.heads * self.head_size * pairs
        return batch * (2 * self.parameters * new + attention)

    def bytes_read(self, new: int, cached: int = 0, *, batch: int = 1, bytes_per_number: float = 2) -> float:
        """Bytes that one call reads at least: all weights once, and the cache of each sequence once.

        Activations are left out: they are small next to the weights, unless the batch is very large.
        """
        cache = self.cache_bytes(cached + new, bytes_per_number=bytes_per_number)
        return self.parameters * bytes_per_number + batch * cache


PUBLISHED = {
    "GPT-2 (124 M)": DecoderSize(12, 12, 12, 64, 124e6, 1024),
    "Llama 2 7B": DecoderSize(32, 32, 32, 128, 6.7e9, 4096),
    "Qwen2.5 7B": DecoderSize(28, 28, 4, 128, 7.6e9, 131_072),
    "Llama 3.1 8B": DecoderSize(32, 32, 8, 128, 8.0e9, 131_072),
    "Llama 3.1 70B": DecoderSize(80, 64, 8, 128, 70.6e9, 131_072),
}


@dataclass(frozen=True)
class AtThePeaks:
    """How long a call takes at least on a device: no kernel exceeds the device's peaks.

    Attributes:
        size: of the decoder, in FP16.
        operations_per_s: peak of the Tensor Cores in this type.
        bytes_per_s: peak bandwidth of device memory.
    """

    size: DecoderSize
    operations_per_s: float
    bytes_per_s: float

    def prefill_s(self, prompt: int) -> float:
        """Seconds of the call that reads a prompt of this many tokens."""
        return self._seconds(self.size.operations(prompt), self.size.bytes_read(prompt))

    def step_s(self, batch: int, cached: int) -> float:
        """Seconds of one new token for each of `batch` sequences, which hold `cached` tokens together."""
        operations = self.size.operations(1, cached // batch, batch=batch)
        return self._seconds(operations, self.size.bytes_read(1, cached // batch, batch=batch))

    def _seconds(self, operations: float, size: float) -> float:
        return max(operations / self.operations_per_s, size / self.bytes_per_s)
