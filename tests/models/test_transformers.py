"""Models of transformers, made from small configurations, and adapters of peft around them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

# Nothing is fetched: models are made from configurations.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from support.torch_models import Case, check  # noqa: E402

SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
VOCABULARY = {"vocab_size": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
LLAMA = {**SMALL, **VOCABULARY, "num_key_value_heads": 1, "max_position_embeddings": 32, "use_cache": False}
T5 = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2, "vocab_size": 64, "use_cache": False}
GPT2 = {**VOCABULARY, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32, "use_cache": False}


def tokens(step: int, *shape: int) -> Any:
    """Random tokens, the same for the same step."""
    return torch.randint(3, 64, shape, generator=torch.Generator().manual_seed(step))


def text(step: int) -> dict[str, Any]:
    """A batch of a language model."""
    found = tokens(step, 2, 8)
    return {"input_ids": found, "labels": found}


def classified_text(step: int) -> dict[str, Any]:
    """A batch of a classifier, the second text shorter than the first."""
    mask = torch.ones(2, 8, dtype=torch.long)
    mask[1, 5:] = 0
    return {"input_ids": tokens(step, 2, 8), "attention_mask": mask, "labels": torch.tensor([0, 1])}


def images(step: int) -> dict[str, Any]:
    """A batch of an image classifier."""
    pixels = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(step))
    return {"pixel_values": pixels, "labels": torch.tensor([0, 1])}


def images_and_text(step: int) -> dict[str, Any]:
    """A batch of pairs."""
    return {"pixel_values": images(step)["pixel_values"], "input_ids": tokens(step, 2, 8), "return_loss": True}


def adam(parameters: Any) -> Any:
    return torch.optim.AdamW(parameters, lr=1e-3)


def made(model: str, config: str, **options: Any) -> Any:
    """Return what makes a model of a class of transformers."""
    return lambda: getattr(transformers, model)(getattr(transformers, config)(**options)).train()


def clip() -> Any:
    """CLIP, of two small transformers."""
    config = transformers.CLIPConfig(
        text_config={**SMALL, **VOCABULARY, "max_position_embeddings": 16},
        vision_config={**SMALL, "image_size": 16, "patch_size": 8},
        projection_dim=8,
    )
    return transformers.CLIPModel(config).train()


CASES = {
    "BERT": Case(
        made("BertForSequenceClassification", "BertConfig", **SMALL, **VOCABULARY, max_position_embeddings=32),
        classified_text,
        optimizer=adam,
    ),
    "GPT-2": Case(made("GPT2LMHeadModel", "GPT2Config", **GPT2), text, optimizer=adam),
    "Llama": Case(made("LlamaForCausalLM", "LlamaConfig", **LLAMA), text, optimizer=adam),
    "Mixtral": Case(
        made("MixtralForCausalLM", "MixtralConfig", **LLAMA, num_local_experts=4, output_router_logits=True),
        text,
        optimizer=adam,
    ),
    "T5": Case(made("T5ForConditionalGeneration", "T5Config", **T5, decoder_start_token_id=0), text, optimizer=adam),
    "ViT": Case(
        made("ViTForImageClassification", "ViTConfig", **SMALL, image_size=16, patch_size=4), images, optimizer=adam
    ),
    "CLIP": Case(clip, images_and_text, optimizer=adam),
    "ResNet": Case(
        made(
            "ResNetForImageClassification",
            "ResNetConfig",
            embedding_size=8,
            hidden_sizes=[8, 16],
            depths=[1, 2],
            layer_type="bottleneck",
        ),
        images,
    ),
    "ConvNeXt": Case(
        made("ConvNextForImageClassification", "ConvNextConfig", hidden_sizes=[8, 16], depths=[1, 2], num_stages=2),
        images,
        optimizer=adam,
    ),
    "Swin": Case(
        made(
            "SwinForImageClassification",
            "SwinConfig",
            image_size=16,
            patch_size=2,
            embed_dim=8,
            depths=[1, 2],
            num_heads=[2, 2],
            window_size=2,
        ),
        images,
        optimizer=adam,
    ),
    "MobileNetV2": Case(
        made("MobileNetV2ForImageClassification", "MobileNetV2Config", image_size=32, depth_multiplier=0.25), images
    ),
    "Mamba": Case(
        made(
            "MambaForCausalLM",
            "MambaConfig",
            **VOCABULARY,
            hidden_size=16,
            state_size=4,
            num_hidden_layers=2,
            use_cache=False,
        ),
        text,
        optimizer=adam,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_values_are_those_of_plain_pytorch(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
@pytest.mark.parametrize("name", ["GPT-2", "Llama"])
def test_values_of_low_rank_adapters_are_those_of_plain_pytorch(name: str, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")

    def make() -> Any:
        targets = {"GPT-2": ["c_attn"], "Llama": ["q_proj", "v_proj"]}[name]
        config = peft.LoraConfig(
            r=2, target_modules=targets, lora_dropout=0.1, task_type="CAUSAL_LM", fan_in_fan_out=name == "GPT-2"
        )
        return peft.get_peft_model(CASES[name].make(), config)

    def path(name: str) -> str:
        """The path without the wrappers of peft."""
        kept = [part for part in name.split(".") if part != "base_layer"]
        wrappers = 2 if kept[:2] == ["base_model", "model"] else int(kept[0] == "base_model")
        return ".".join(kept[wrappers:])

    check(Case(make, text, optimizer=adam, path=path), tmp_path)
