"""Trains DICE's detector and its judge of coherence, each as an adapter on a model of images and text. A command a stage:

    python -m examples.training.dice.train_dice pairs lvis/sft.jsonl --out models/stage1
    python -m examples.training.dice.train_dice inpainted inpainted/sft.jsonl --base models/stage1 --out models/detector
    python -m examples.training.dice.train_dice coherence judged/sft.jsonl --out models/coherence

Run it from the root of the repository, with `pip install "editloupe[train]"`. The rows are those of `editloupe export
--sft`: two pictures, a question and the answer; the loss is on the answer alone. An adapter as the base is merged first,
and the merged model is kept in OUT/base. OUT is an adapter folder: `--backend transformers/OUT` judges with it. The same
command continues from the last checkpoint. `accelerate launch -m` in place of `python -m` trains on several GPUs.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal

from editloupe.errors import ConfigError
from editloupe.models.adapted import Adapted, find_adapted
from examples.training.train_verifier import BadOption, BadRow, count, named_options, read_rows

BASE: Final = "HuggingFaceM4/Idefics3-8B-Llama3"
LORA_TARGETS: Final = r".*\.(text_model|language_model)\..*\.(q|k|v|o|gate|up|down)_proj"
"""Attention and MLP of the text blocks; the vision encoder and the connector have none of these parents."""
SHAPE: Final = ("stage", "data", "base", "rank", "alpha", "dropout", "batch_size", "learning_rate", "seed")
"""Options that a training keeps from its first command to its last."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What the paper says of a stage."""

    text: str
    steps: int
    """Weight updates until it converged."""
    learning_rate: float
    batch_size: int
    """Rows of an update, on all GPUs together."""


STAGES: Final = {
    "pairs": Stage(text="stage 1: pairs of similar photographs", steps=9_000, learning_rate=1e-4, batch_size=8),
    "inpainted": Stage(text="stage 2: photographs and inpainted edits", steps=30_000, learning_rate=1e-4, batch_size=8),
    "coherence": Stage(text="the judge of coherence", steps=550, learning_rate=1e-5, batch_size=1),
}


@dataclass(frozen=True, kw_only=True)
class Precision:
    """How the frozen weights are held, and which optimizer trains the adapter."""

    four_bit: bool
    optimizer: str
    """A name of transformers' `optim`."""
    dtype: Literal["bfloat16", "float32"]
    """Of the computation, and of weights that are not in 4 bits."""


def precision(wanted: str, *, cuda: bool, bitsandbytes: bool) -> Precision:
    """Return the paper's 4 bits and paged 8-bit AdamW where bitsandbytes and CUDA are there, else 16 or 32 bits.

    wanted: "auto", "4bit" or "16bit" (32 without CUDA).   Raises BadOption where 4 bits are wanted and cannot be had.
    """
    able = cuda and bitsandbytes
    if wanted == "4bit" and not able:
        lacking = "bitsandbytes (pip install bitsandbytes)" if cuda else "an NVIDIA GPU"
        raise BadOption(f"--weights 4bit needs {lacking}; leave it out to train on unquantized weights")
    return Precision(
        four_bit=able and wanted != "16bit",
        optimizer="paged_adamw_8bit" if able else "adamw_torch",
        dtype="bfloat16" if cuda else "float32",
    )


def main(words: Sequence[str] | None = None) -> int:
    """Train one stage and return the exit code: 0 trained and saved, 1 the loss is not finite, 2 wrong options or data."""
    parser = options()
    args = parser.parse_args(words)
    try:
        rows = list(read_rows(args.data, "sft"))
        for number, row in enumerate(rows, start=1):
            if len(row["images"]) != 2:
                raise BadRow(
                    f"{args.data}, answer {number}: expected two images before it, the source and the edited one; found "
                    f"{len(row['images'])}"
                )
    except (BadRow, OSError) as error:
        parser.error(str(error))
    if not rows:
        parser.error(f"{args.data} has no rows; expected what editloupe export --sft writes")
    if args.out.exists() and not args.out.is_dir():
        parser.error(f"--out {args.out} is a file; name a folder")
    try:
        return train(args, rows)
    except (BadOption, ConfigError) as error:
        parser.error(str(error))
    except ImportError as error:
        parser.error(f'{error}; install what training needs: pip install "editloupe[train]"')


def options() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    stages = parser.add_subparsers(dest="stage", required=True, metavar="|".join(STAGES))
    for name, stage in STAGES.items():
        one = stages.add_parser(name, help=stage.text, description=stage.text)
        papers = "Default: %(default)s, the paper's"
        one.add_argument("data", type=Path, metavar="FILE", help="JSONL; the names of images are relative to it")
        one.add_argument("--out", type=Path, required=True, help="folder of the adapter; checkpoints are inside")
        one.add_argument("--base", default=BASE, help=f"hub id or folder of a model, or of an adapter. {papers}")
        one.add_argument("--steps", dest="max_steps", type=count, default=stage.steps, help=f"weight updates. {papers}")
        one.add_argument("--learning-rate", type=float, default=stage.learning_rate, help=papers)
        one.add_argument(
            "--batch-size", type=count, default=stage.batch_size, help=f"rows an update, on all GPUs together. {papers}"
        )
        one.add_argument("--rows-at-once", type=count, default=1, help="rows a GPU holds at once. Default: %(default)s")
        one.add_argument("--rank", type=count, default=64, help=f"of the adapter. {papers}")
        one.add_argument("--alpha", type=count, default=16, help=f"its updates count alpha / rank. {papers}")
        one.add_argument("--dropout", type=float, default=0.1, help=f"of the adapter, 0 to below 1. {papers}")
        one.add_argument(
            "--weights",
            choices=("auto", "4bit", "16bit"),
            default="auto",
            help="how the frozen weights are held. Default: the paper's 4bit, where bitsandbytes and a GPU are there",
        )
        one.add_argument(
            "--longest-edge", type=count, metavar="PX", help="scale images to this longer side. Default: the base's own"
        )
        one.add_argument("--seed", type=int, default=0, help="Default: %(default)s")
        one.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="any other option of trl's SFTConfig, its value as JSON; may be repeated",
        )
    return parser


def train(args: argparse.Namespace, rows: list[dict[str, Any]]) -> int:
    """Train on rows as `read_rows` yields them, save adapter, processor and training.json; return the exit code."""
    import torch
    from accelerate import PartialState
    from datasets import Dataset, Image, List
    from peft import LoraConfig
    from transformers.trainer_utils import get_last_checkpoint
    from trl import SFTConfig, SFTTrainer

    if not 0 <= args.dropout < 1:
        raise BadOption(f"--dropout {args.dropout}: expected 0 or more, and less than 1")
    cuda = torch.cuda.is_available()
    held = precision(args.weights, cuda=cuda, bitsandbytes=find_spec("bitsandbytes") is not None)
    state = PartialState()
    accumulate, rest = divmod(args.batch_size, args.rows_at_once * state.num_processes)
    if rest or not accumulate:
        raise BadOption(
            f"--batch-size {args.batch_size} is no multiple of --rows-at-once {args.rows_at_once} × {state.num_processes} "
            "processes"
        )
    checkpoints = args.out / "checkpoints"
    config = SFTConfig(
        **{
            "output_dir": str(checkpoints),
            "per_device_train_batch_size": args.rows_at_once,
            "gradient_accumulation_steps": accumulate,
            "seed": args.seed,
            "optim": held.optimizer,
            "bf16": held.dtype == "bfloat16",
            "completion_only_loss": True,
            # A length limit would cut image tokens away.
            "max_length": None,
            "report_to": "none",
            "logging_first_step": True,
            "logging_nan_inf_filter": False,
            "save_total_limit": 2,
        }
        | named_options(args, SFTConfig)
    )
    weights = find_adapted(args.base)
    with state.main_process_first():
        if state.is_main_process:
            _claim(args)
        if weights.adapter is not None:
            weights = _merged(weights, args.out / "base", write=state.is_main_process)
    processor = weights.processor()
    if args.longest_edge is not None:
        _scale_to(processor, args.longest_edge)
    more: dict[str, Any] = {}
    if held.four_bit:
        from transformers import BitsAndBytesConfig

        more["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=getattr(torch, held.dtype),
        )
        more["device_map"] = {"": state.local_process_index}
    lora = LoraConfig(
        r=args.rank,
        lora_alpha=args.alpha,
        lora_dropout=args.dropout,
        target_modules=LORA_TARGETS,
        task_type="CAUSAL_LM",
    )
    dataset = Dataset.from_list(rows).shuffle(seed=args.seed).cast_column("images", List(Image()))
    trainer = SFTTrainer(
        model=weights.load(getattr(torch, held.dtype), **more),
        args=config,
        train_dataset=dataset,
        processing_class=processor,
        peft_config=lora,
    )
    last = get_last_checkpoint(str(checkpoints)) if checkpoints.is_dir() else None
    loss = trainer.train(resume_from_checkpoint=last).training_loss
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    trained = trainer.accelerator.unwrap_model(trainer.model)
    # The last update comes after the last loss.
    finite = all(bool(p.isfinite().all()) for p in trained.parameters() if p.requires_grad)
    if not finite or not all(map(math.isfinite, [loss, *losses])):
        print(f"the loss is not finite: {[*losses, loss]}; nothing is saved. Try a lower --learning-rate", file=sys.stderr)
        return 1
    if trainer.is_world_process_zero():
        # A folder of the hub's cache is no name that another machine has.
        of_hub = not Path(args.base).expanduser().is_dir()
        repository, _, commit = weights.model.identity.partition("@")
        adapter = trained.peft_config["default"]
        adapter.base_model_name_or_path = repository if of_hub else str(weights.model.path)
        adapter.revision = commit if of_hub else None
        trained.save_pretrained(args.out, safe_serialization=True)
        processor.save_pretrained(args.out)
        record = {
            **{name: str(getattr(args, name)) if name in ("data", "base") else getattr(args, name) for name in SHAPE},
            "rows": len(dataset),
            "updates": trainer.state.global_step,
            "losses": losses,
            "weights": "4bit" if held.four_bit else held.dtype,
            "optimizer": held.optimizer,
            "versions": {name: version(name) for name in ("trl", "transformers", "torch", "peft")},
        }
        (args.out / "training.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        print(f"{len(dataset)} rows, {trainer.state.global_step} updates: {args.out}")
        print(f"first loss {losses[0]:.4g}, last loss {losses[-1]:.4g}")
    return 0


def _claim(args: argparse.Namespace) -> None:
    """Note what is trained in the folder. Raises BadOption where something else was begun there."""
    asked = {name: str(getattr(args, name)) for name in SHAPE}
    asked["base"] = str(Path(args.base).expanduser().absolute()) if Path(args.base).expanduser().is_dir() else args.base
    asked["data"] = str(args.data.absolute())
    begun = args.out / "begun.json"
    if begun.is_file():
        before = json.loads(begun.read_text(encoding="utf-8"))
        if other := sorted(name for name in SHAPE if before.get(name) != asked[name]):
            told = ", ".join(f"{name} {before.get(name)} (now {asked[name]})" for name in other)
            raise BadOption(f"--out {args.out} holds a training with another {told}; name another folder")
    args.out.mkdir(parents=True, exist_ok=True)
    begun.write_text(json.dumps(asked, indent=1) + "\n", encoding="utf-8")


def _merged(weights: Adapted, folder: Path, *, write: bool) -> Adapted:
    """Return the model that an adapter and its base make together, saved in `folder` by the process that writes.

    An adapter is trained on weights that are not quantized here, so that nothing is lost but the last digits of its dtype.
    """
    of = folder / "merged.txt"
    if write and not (of.is_file() and of.read_text(encoding="utf-8") == weights.version):
        of.unlink(missing_ok=True)
        weights.load("auto").merge_and_unload().save_pretrained(folder)
        weights.processor().save_pretrained(folder)
        of.write_text(weights.version, encoding="utf-8")
    return find_adapted(str(folder))


def _scale_to(processor: Any, longest_edge: int) -> None:
    """Make the processor scale images to this longer side in px. Raises BadOption where it has no such size."""
    images = processor.image_processor
    side = (getattr(images, "max_image_size", None) or {}).get("longest_edge")
    if side is None or not images.size.get("longest_edge"):
        raise BadOption("--longest-edge: this model's processor cuts no images into parts; leave the option out")
    if longest_edge < side:
        raise BadOption(f"--longest-edge {longest_edge}: expected {side} or more, the side in px of one part")
    images.size = {"longest_edge": longest_edge}


if __name__ == "__main__":
    sys.exit(main())
