"""Trains a verifier of image edits from the JSONL that `editloupe export --sft` writes. Two stages, two commands:

    python examples/training/train_verifier.py sft train/sft.jsonl --out models/sft
    python examples/training/train_verifier.py dpo train/dpo.jsonl --base models/sft --out models/verifier

The recipe is that of Qwen-Verify (UnicEdit-10M). Stage 1 is supervised: what was really done (Normal), or that nothing was
done (No Edit). Stage 2 takes pairs of restated instructions: the true one is preferred to a hallucinated one. Known of the
paper are the model (Qwen2.5-VL-7B), the rows of each stage (about 200,000 and 20,000) and the loss of stage 2: with the
advantage A(p) = beta * log(policy(p) / reference(p)), it is -log sigmoid(A(chosen) - A(rejected)). This is DPO with both
pictures in the prompt. Learning rates, beta and epochs are not known; trl's defaults hold unless you name others.

Needs what `pip install "editloupe[train]"` brings, and nothing of editloupe itself. The same command continues from the
last checkpoint. `accelerate launch` in place of `python` trains on several GPUs, each with the whole model.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

BASE: Final = "Qwen/Qwen2.5-VL-7B-Instruct"
ROWS: Final = {"sft": 200_000, "dpo": 20_000}
"""About how many rows the paper trains on in each stage."""
COLUMNS: Final = {"sft": ("messages",), "dpo": ("prompt", "chosen", "rejected")}
"""The conversations of a row of each stage; every row has `images` beside them."""
LORA_TARGETS: Final = r".*language_model.*\.(q|k|v|o|gate|up|down)_proj"


class BadRow(ValueError):
    """A row that cannot be trained on. The message names the file and the line."""


class BadOption(ValueError):
    """An option that cannot be taken. The message names it."""


def main(words: Sequence[str] | None = None) -> int:
    """Train one stage and return the exit code: 0 trained and saved, 1 the loss is not finite, 2 wrong options or data."""
    parser = options()
    args = parser.parse_args(words)
    try:
        rows = list(read_rows(args.data, args.stage))
    except (BadRow, OSError) as error:
        parser.error(str(error))
    if not rows:
        parser.error(f"{args.data} has no rows; expected what editloupe export --sft DIR writes")
    if args.out.exists() and not args.out.is_dir():
        parser.error(f"--out {args.out} is a file; name a folder")
    try:
        return train(args, rows)
    except BadOption as error:
        parser.error(str(error))
    except ImportError as error:
        parser.error(f'{error}; install what training needs: pip install "editloupe[train]"')


def options() -> argparse.ArgumentParser:
    """Return the command line."""
    unknown = "The paper's value is not known. Default: trl's."
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    stages = parser.add_subparsers(dest="stage", required=True, metavar="sft|dpo")
    for stage, text in (("sft", "stage 1: supervised"), ("dpo", "stage 2: preference pairs")):
        one = stages.add_parser(stage, help=text, description=text)
        one.add_argument("data", type=Path, metavar="FILE", help="JSONL; the names of images are relative to it")
        one.add_argument("--out", type=Path, required=True, help="folder of the trained model; checkpoints are inside")
        one.add_argument("--base", default=BASE, help="hub id or folder of a Qwen2.5-VL. Default: %(default)s, the paper's")
        one.add_argument(
            "--rows", type=count, default=ROWS[stage], help="at most so many rows, drawn by the seed. Default: %(default)s"
        )
        one.add_argument("--lora", type=count, metavar="RANK", help="train adapters of this rank and merge them at the end")
        one.add_argument("--learning-rate", type=float, help=unknown)
        one.add_argument("--epochs", type=float, help=unknown)
        if stage == "dpo":
            one.add_argument("--beta", type=float, help=f"how far the policy may leave the reference. {unknown}")
        one.add_argument("--batch-size", type=count, default=1, help="rows a device and step. Default: %(default)s")
        one.add_argument("--accumulate", type=count, default=8, help="steps a weight update. Default: %(default)s")
        one.add_argument("--max-steps", type=count, help="stop after so many weight updates")
        one.add_argument("--max-pixels", type=count, help="shrink larger images to this area. Default: the model's own")
        one.add_argument("--seed", type=int, default=0, help="Default: %(default)s")
        one.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help=f"any other option of trl's {stage.upper()}Config, its value as JSON; may be repeated",
        )
    return parser


def count(word: str) -> int:
    """Return an option's whole number of at least 1."""
    number = int(word)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more, found {word}")
    return number


def read_rows(file: Path, stage: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of an export with the images' full paths.

    A dialogue in which the model speaks several times gives a row for each of its messages (stage 1), so that the loss is
    on the model's own words under any chat template.
    Raises BadRow for a line that is not such a row or names an image that is not there, OSError if the file cannot be read.
    """
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                where = f"{file}, line {number}"
                row, images = _checked(line, where, file.parent, stage)
                if stage == "dpo":
                    yield {**{name: row[name] for name in COLUMNS[stage]}, "images": images}
                    continue
                for end, message in enumerate(row["messages"]):
                    if message["role"] == "assistant":
                        before = row["messages"][:end]
                        yield {"prompt": before, "completion": [message], "images": images[: _places(before)]}


def _checked(line: str, where: str, folder: Path, stage: str) -> tuple[dict[str, Any], list[str]]:
    try:
        data = json.loads(line)
        row = {name: [_message(one) for one in data[name]] for name in COLUMNS[stage]}
        images = [str(folder / str(name)) for name in data["images"]]
    except (ValueError, KeyError, TypeError) as error:
        columns = ", ".join((*COLUMNS[stage], "images"))
        raise BadRow(f"{where}: expected a row of editloupe export --sft with {columns}; found {error!r}") from error
    missing = [name for name in images if not Path(name).is_file()]
    if missing:
        raise BadRow(f"{where}: there is no image {missing[0]}; images are named relative to the file")
    places = _places(row[COLUMNS[stage][0]])
    if places != len(images):
        raise BadRow(f"{where}: {places} places for images in the messages and {len(images)} images; expected as many")
    if stage == "sft" and not any(message["role"] == "assistant" for message in row["messages"]):
        raise BadRow(f"{where}: no message has the role assistant; there is nothing to learn")
    return row, images


def _message(message: dict[str, Any]) -> dict[str, Any]:
    """The message with a list of parts as its content, all with the same keys, as a table of rows needs it."""
    content = message["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {
        "role": str(message["role"]),
        "content": [{"type": part["type"], "text": part["text"] if part["type"] == "text" else None} for part in parts],
    }


def _places(messages: Sequence[dict[str, Any]]) -> int:
    return sum(part["type"] == "image" for message in messages for part in message["content"])


def train(args: argparse.Namespace, rows: list[dict[str, Any]]) -> int:
    """Train on rows as `read_rows` yields them, save model, processor and training.json; return the exit code."""
    import torch
    from datasets import Dataset, Image, List
    from transformers import Qwen2_5_VLForConditionalGeneration
    from transformers.trainer_utils import get_last_checkpoint
    from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

    config_type, trainer_type = (SFTConfig, SFTTrainer) if args.stage == "sft" else (DPOConfig, DPOTrainer)
    checkpoints = args.out / "checkpoints"
    usual = {
        "output_dir": str(checkpoints),
        "per_device_train_batch_size": args.batch_size,
        "gradient_accumulation_steps": args.accumulate,
        "seed": args.seed,
        # A length limit would cut image tokens away.
        "max_length": None,
        "report_to": "none",
        "logging_nan_inf_filter": False,
        "bf16": torch.cuda.is_available() and torch.cuda.is_bf16_supported(),
    }
    config = config_type(**usual | named_options(args, config_type))
    dataset = Dataset.from_list(rows).shuffle(seed=args.seed)
    dataset = dataset.select(range(min(args.rows, len(dataset)))).cast_column("images", List(Image()))
    # All weights in float32 when all are trained. Under adapters they only multiply, and half of the memory is enough.
    dtype = torch.float32 if args.lora is None else torch.bfloat16
    try:
        processor = open_processor(args.base)
        model = Qwen2_5_VLForConditionalGeneration.from_pretrained(args.base, dtype=dtype)
    except (OSError, ValueError) as error:
        raise BadOption(f"--base {args.base} cannot be loaded as a Qwen2.5-VL: {error}") from error
    if args.max_pixels is not None:
        processor.image_processor.size["longest_edge"] = args.max_pixels
    trainer = trainer_type(
        model=model, args=config, train_dataset=dataset, processing_class=processor, peft_config=_adapters(args.lora)
    )
    last = get_last_checkpoint(str(checkpoints)) if checkpoints.is_dir() else None
    loss = trainer.train(resume_from_checkpoint=last).training_loss
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    if not all(map(math.isfinite, [loss, *losses])):
        print(f"the loss is not finite: {[*losses, loss]}; nothing is saved. Try a lower --learning-rate", file=sys.stderr)
        return 1
    if trainer.is_world_process_zero():
        trained = trainer.accelerator.unwrap_model(trainer.model)
        if args.lora is not None:
            trained = trained.merge_and_unload()
        # As the base is published, and as servers load it.
        trained.to(torch.bfloat16).save_pretrained(args.out)
        processor.save_pretrained(args.out)
        record = {
            "stage": args.stage,
            "data": str(args.data),
            "base": args.base,
            "rows": len(dataset),
            "updates": trainer.state.global_step,
            "losses": losses,
            "options": {name: getattr(config, name) for name in ("learning_rate", "num_train_epochs", "seed")},
            "versions": {name: version(name) for name in ("trl", "transformers", "torch", "peft")},
        }
        (args.out / "training.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        print(f"{len(dataset)} rows, {trainer.state.global_step} updates: {args.out}")
    return 0


def named_options(args: argparse.Namespace, config_type: Any) -> dict[str, Any]:
    """Return the options of trl's config that the command line names. Raises BadOption for one that it does not have."""
    given = {
        "learning_rate": args.learning_rate,
        "num_train_epochs": getattr(args, "epochs", None),
        "beta": getattr(args, "beta", None),
        "max_steps": args.max_steps,
    }
    more: dict[str, Any] = {}
    for word in args.set:
        name, given_value, value = word.partition("=")
        if not given_value or name not in {field.name for field in fields(config_type)}:
            raise BadOption(f"--set {word}: expected NAME=VALUE with an option of trl's {config_type.__name__}")
        try:
            more[name] = json.loads(value)
        except ValueError:
            more[name] = value
    return {**{name: value for name, value in given.items() if value is not None}, **more}


def _adapters(rank: int | None) -> Any:
    if rank is None:
        return None
    from peft import LoraConfig

    return LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=LORA_TARGETS, task_type="CAUSAL_LM")


def open_processor(base: str) -> Any:
    """Return the processor of a Qwen2.5-VL, which turns messages and images into what the model reads.

    transformers' own wants torchvision, for videos alone. This one reads images only, and saves the base's files as they
    are.
    """
    from transformers import AutoImageProcessor, AutoTokenizer, ProcessorMixin, Qwen2_5_VLProcessor

    folder = Path(base)
    if not folder.is_dir():
        from huggingface_hub import snapshot_download

        folder = Path(snapshot_download(base, allow_patterns=["*.json", "*.jinja", "*.txt"]))

    class ImagesOnly(Qwen2_5_VLProcessor):
        def __init__(self, image_processor: Any = None, tokenizer: Any = None, chat_template: Any = None) -> None:
            self.image_token, self.video_token = "<|image_pad|>", "<|video_pad|>"
            self.image_token_id, self.video_token_id = map(
                tokenizer.convert_tokens_to_ids, (self.image_token, self.video_token)
            )
            ProcessorMixin.__init__(self, image_processor, tokenizer, chat_template=chat_template)

        def save_pretrained(self, save_directory: Any, **more: Any) -> list[str]:
            target = Path(save_directory)
            target.mkdir(parents=True, exist_ok=True)
            weights = {"config.json", "generation_config.json"}
            files = [file for kind in ("*.json", "*.jinja", "*.txt") for file in folder.glob(kind)]
            kept = [f for f in files if f.name not in weights and not f.name.endswith(".index.json")]
            return [shutil.copy(file, target) for file in kept]

    tokenizer = AutoTokenizer.from_pretrained(base)
    return ImagesOnly(AutoImageProcessor.from_pretrained(base), tokenizer, chat_template=tokenizer.chat_template)


if __name__ == "__main__":
    sys.exit(main())
