"""PyTorch's own modules: recurrent, attentive, sparse, parametrized, lazy, quantized."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn.utils import parametrizations, rnn  # noqa: E402

from support.torch_models import Case, check  # noqa: E402


def numbers(step: int, *shape: int) -> Any:
    """Random numbers, the same for the same step."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(step))


def words(step: int, *shape: int, vocabulary: int = 50) -> Any:
    """Random words, the same for the same step."""
    return torch.randint(vocabulary, shape, generator=torch.Generator().manual_seed(step))


def square(output: Any) -> Any:
    """A loss of all tensors in the output."""
    from support.torch_models import tensors

    return sum(each.float().pow(2).mean() for each in tensors(output) if each.is_floating_point())


class Packed(nn.Module):
    """A recurrent network of sequences of different lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 5, batch_first=True)
        self.linear = nn.Linear(5, 2)

    def forward(self, x: Any, lengths: Any) -> Any:
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        output, _ = self.lstm(packed)
        return self.linear(rnn.pad_packed_sequence(output, batch_first=True)[0])


class Seq2Seq(nn.Module):
    """Embeddings around PyTorch's Transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.transformer = nn.Transformer(16, 2, 2, 2, 32, dropout=0.1, batch_first=True)
        self.head = nn.Linear(16, 50)

    def forward(self, source: Any, target: Any) -> Any:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        return self.head(self.transformer(self.embedding(source), self.embedding(target), tgt_mask=mask))


class Tied(nn.Module):
    """A language model whose head has the weights of its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.gru = nn.GRU(16, 16, num_layers=2, dropout=0.2, bidirectional=False, batch_first=True)
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: Any) -> Any:
        return self.head(self.gru(self.embedding(x))[0])


class Shared(nn.Module):
    """One layer that runs three times in a step."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.1), nn.Tanh())

    def forward(self, x: Any) -> dict[str, Any]:
        return {"first": self.layer(x), "rest": [self.layer(self.layer(x)), None]}


def quantized() -> Any:
    """A network with 8-bit weights, behind a layer that is trained."""
    inner = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    return torch.ao.quantization.quantize_dynamic(inner, {nn.Linear}, dtype=torch.qint8)


def parametrized() -> Any:
    """Each of PyTorch's parametrizations."""
    return nn.Sequential(
        parametrizations.weight_norm(nn.Linear(8, 8)),
        parametrizations.spectral_norm(nn.Linear(8, 8)),
        parametrizations.orthogonal(nn.Linear(8, 8)),
    )


def adam(parameters: Any) -> Any:
    return torch.optim.AdamW(parameters, lr=1e-3)


IMAGES = (2, 3, 16, 16)
CASES = {
    "LSTM": Case(lambda: nn.LSTM(6, 5, 2, bidirectional=True), lambda i: (numbers(i, 4, 3, 6),), square),
    "GRU with a state": Case(
        lambda: nn.GRU(6, 5, batch_first=True), lambda i: (numbers(i, 3, 4, 6), numbers(i, 1, 3, 5)), square
    ),
    "RNNCell": Case(lambda: nn.RNNCell(6, 5), lambda i: {"input": numbers(i, 3, 6), "hx": numbers(i, 3, 5)}, square),
    "packed sequences": Case(Packed, lambda i: (numbers(i, 3, 4, 6), torch.tensor([4, 2, 3])), square),
    "tied weights": Case(Tied, lambda i: (words(i, 2, 6),), square, adam),
    "Transformer": Case(Seq2Seq, lambda i: (words(i, 2, 6), words(i + 99, 2, 5)), square, adam),
    "TransformerEncoder": Case(
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2, enable_nested_tensor=False
        ),
        lambda i: (numbers(i, 2, 5, 16),),
        square,
    ),
    "MultiheadAttention": Case(
        lambda: nn.MultiheadAttention(16, 4), lambda i: (numbers(i, 5, 2, 16),) * 3, square, adam
    ),
    "sparse Embedding": Case(
        lambda: nn.Embedding(50, 8, sparse=True),
        lambda i: (words(i, 3, 4),),
        square,
        lambda parameters: torch.optim.SparseAdam(parameters, lr=0.1),
    ),
    "sparse EmbeddingBag": Case(
        lambda: nn.EmbeddingBag(50, 8, sparse=True), lambda i: (words(i, 12), torch.tensor([0, 3, 7])), square
    ),
    "parametrizations": Case(parametrized, lambda i: (numbers(i, 4, 8),), square),
    "a shared layer": Case(Shared, lambda i: (numbers(i, 4, 8),), square),
    "convolutions": Case(
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.ConvTranspose2d(8, 3, 3),
            nn.GroupNorm(3, 3),
        ),
        lambda i: (numbers(i, *IMAGES),),
        square,
        adam,
    ),
    "bfloat16": Case(
        lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).bfloat16(),
        lambda i: (numbers(i, 4, 8).bfloat16(),),
        square,
    ),
    "complex numbers": Case(
        lambda: nn.Linear(8, 4, dtype=torch.complex64),
        lambda i: (torch.complex(numbers(i, 4, 8), numbers(i + 99, 4, 8)),),
        lambda output: output.abs().mean(),
    ),
    "quantized": Case(quantized, lambda i: (numbers(i, 4, 8),), square, steps=20),
    "lazy modules": Case(
        lambda: nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(5)),
        lambda i: (numbers(i, *IMAGES),),
        square,
    ),
}


@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_values_are_those_of_plain_pytorch(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)
