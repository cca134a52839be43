"""The two sides of `training_throughput`: limbeck's trainer and sentence-transformers' own, on the same examples.

Every query has one judged positive and its K - 1 best BM25 candidates, always the same, so that both sides see the same
lists. The teacher is the whole MiniLM as it is, its cosines times 20.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import redirect_stderr
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import send_to_device
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.sentence_transformer.losses import DistillKLDivLoss, MarginMSELoss
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState
from transformers.trainer_callback import PrinterCallback
from transformers.trainer_utils import IntervalStrategy

from limbeck.data import Texts
from limbeck.matchers import DualEncoder, build, matcher_config
from limbeck.matchers.quiet import quiet
from limbeck.recipe.data_spec import DataSpec
from limbeck.recipe.evaluation_spec import EvaluationSpec
from limbeck.recipe.recipe import Recipe
from limbeck.recipe.stage import ListSpec, Stage
from limbeck.recipe.teacher_spec import TeacherSpec
from limbeck.runs.ranking_task import RankingTask
from limbeck.runs.teacher_step import prepare_teacher
from limbeck.training.batches import BatchPlan, Collator
from limbeck.training.lists import RankedQuery, RankingLists
from limbeck.training.log import RunLog
from limbeck.training.trainer import DistillationTrainer

LIST_SIZES = {"margin_mse": 2, "kl": 8}  # limbeck's objective -> documents per query
LONGEST_LIST = max(LIST_SIZES.values())
SCALE = 20.0  # from cosines to scores: of the teacher, and of the student at its start
BATCH_SIZE = 16
LEARNING_RATE, WEIGHT_DECAY, MAX_GRAD_NORM = 5e-5, 0.01, 1.0
LENGTHS = [(16, 64), (32, 128), (32, 256)]  # tokens of a query, of a document
LONG_TEXT = 5000  # characters that fill 256 tokens of any English text


def open_session(data: str, train_queries: int, folder: Path) -> RankingTask:
    """Data, BM25's candidates, the teacher and a measure on dev, as a recipe would have them."""
    recipe = Recipe(
        data=DataSpec(source=data, train_queries=train_queries, dev_queries=200),
        teacher=TeacherSpec(model="minilm"),
        stages=[_stage("kl", steps=1)],
        evaluation=EvaluationSpec(dev_depth=50, measures=["ndcg@10"]),
    )
    session = RankingTask(recipe, folder)
    teacher = prepare_teacher(session)
    assert isinstance(teacher, DualEncoder)
    teacher.tower.model.max_seq_length = LENGTHS[-1][1]  # it reads as much as a student
    return session


def fixed_lists(session: RankingTask, objective: str, long: bool) -> RankingLists:
    """One positive and the same K - 1 negatives for each query; with `long`, documents longer than any limit."""
    size = LIST_SIZES[objective]
    drawn = session.lists(session.recipe.stages[0], seed=0)
    queries = [_fixed(query, size) for query in drawn.ranked if query.positives and len(query.pool) >= LONGEST_LIST - 1]
    corpus = _lengthened(drawn.corpus, queries) if long else drawn.corpus
    return RankingLists(corpus, drawn.queries, queries, size, "sample", seed=0)


def _fixed(query: RankedQuery, size: int) -> RankedQuery:
    positive, grade = next(iter(query.positives.items()))
    return replace(query, positives={positive: grade}, pool=query.pool[: size - 1], scores=query.scores * SCALE)


def _lengthened(corpus: Texts, queries: list[RankedQuery]) -> Texts:
    """The corpus with each document that is used followed by its neighbours, up to `LONG_TEXT` characters."""
    used = {int(row) for query in queries for row in (*query.positives, *query.pool)}
    return Texts.build(
        (key, "", _followed_by_neighbours(corpus, row) if row in used else "") for row, key in enumerate(corpus)
    )


def _followed_by_neighbours(corpus: Texts, row: int) -> str:
    parts: list[str] = []
    while sum(map(len, parts)) < LONG_TEXT:
        parts.append(corpus.text_at(row))
        row = (row + 1) % len(corpus)
    return " ".join(parts)


def write_start(folder: Path, layers: int, lengths: tuple[int, int]) -> Path:
    """The student that both sides start from: MiniLM's first layers, as a sentence-transformers folder."""
    query, document = lengths
    build(matcher_config(layers=layers, query_length=query, document_length=document, scale=SCALE)).save_pretrained(
        folder
    )
    return folder


def _stage(objective: str, steps: int) -> Stage:
    return Stage(
        objectives=[objective],
        steps=steps,
        batch_size=BATCH_SIZE,
        lr=LEARNING_RATE,
        warmup=0,
        schedule="constant_with_warmup",
        weight_decay=WEIGHT_DECAY,
        max_grad_norm=MAX_GRAD_NORM,
        lists=ListSpec(size=LIST_SIZES[objective], pool=LIST_SIZES[objective] - 1, negatives="bm25"),
        checkpoint_seconds=math.inf,
    )


class Limbeck:
    """limbeck's `DistillationTrainer`, as `limbeck.training.stages.fit` makes it, without dev and logging."""

    def __init__(self, start: Path, lists: RankingLists, objective: str, folder: Path) -> None:
        self.lists, self.objective, self.folder, self.queries = lists, objective, folder, len(lists)
        self.matcher = DualEncoder.from_pretrained(start)

    def trainer(self, steps: int, seed: int) -> Trainer:
        trainer = DistillationTrainer(
            student=self.matcher,
            stage=_stage(self.objective, steps),
            collator=Collator(self.lists, self.matcher),
            folder=self.folder,
            steps=steps,
            eval_every=steps,
            seed=seed,
            log=RunLog(self.folder / "log.jsonl", "student", 0),
        )
        trainer.args.logging_strategy = IntervalStrategy.NO  # short stages would log every step
        return trainer

    def batch(self, examples: list[tuple[int, int]]) -> Any:
        """The input of the trainer's collator."""
        return examples


class SentenceTransformers:
    """`SentenceTransformerTrainer` with their own loss, limbeck's batches, and lengths by `router_mapping`."""

    def __init__(self, start: Path, lists: RankingLists, objective: str, folder: Path) -> None:
        from datasets import Dataset

        self.folder, self.queries = folder, len(lists)
        with quiet():
            model = SentenceTransformer(str(start))
        self.matcher = DualEncoder(model)  # for the evaluation only
        self.loss = MarginMSELoss(model) if objective == "margin_mse" else DistillKLDivLoss(model)
        self.examples = Dataset.from_list([_row(lists, index, objective) for index in range(len(lists))])

    def trainer(self, steps: int, seed: int) -> Trainer:
        documents = [name for name in self.examples.column_names if name not in ("query", "label")]
        arguments = SentenceTransformerTrainingArguments(
            output_dir=str(self.folder),
            max_steps=steps,
            per_device_train_batch_size=BATCH_SIZE,
            learning_rate=LEARNING_RATE,
            lr_scheduler_type="constant_with_warmup",
            warmup_steps=0,
            weight_decay=WEIGHT_DECAY,
            max_grad_norm=MAX_GRAD_NORM,
            use_cpu=not (torch.cuda.is_available() or torch.backends.mps.is_available()),
            eval_strategy="no",
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            seed=seed,
            dataloader_pin_memory=torch.cuda.is_available(),
            router_mapping={"query": "query"} | dict.fromkeys(documents, "document"),
            batch_sampler=lambda dataset, **options: PlannedBatches(dataset, steps, **options | {"seed": seed}),
        )
        with quiet(), redirect_stderr(StringIO()):  # a progress bar of its model card
            trainer = SentenceTransformerTrainer(
                model=self.matcher.tower.model, args=arguments, train_dataset=self.examples, loss=self.loss
            )
        trainer.remove_callback(PrinterCallback)
        return trainer

    def batch(self, examples: list[tuple[int, int]]) -> Any:
        """The input of the trainer's collator."""
        return [self.examples[index] for _, index in examples]


Side = Limbeck | SentenceTransformers


def _row(lists: RankingLists, index: int, objective: str) -> dict[str, Any]:
    """One example as sentence-transformers documents it for the loss."""
    rows = lists.pick(index, epoch=0)
    positive, *negatives = lists.texts(rows.tolist())
    scores = lists.teacher(index, rows).tolist()
    return {
        "query": lists.query(index),
        "positive": positive,
        **{f"negative_{number}": text for number, text in enumerate(negatives, 1)},
        "label": scores[0] - scores[1] if objective == "margin_mse" else scores,
    }


class PlannedBatches(DefaultBatchSampler):
    """The batches that limbeck would make of the same number of queries with the same seed."""

    def __init__(self, dataset: Any, batches: int, *, batch_size: int, seed: int, **options: Any) -> None:
        super().__init__(dataset, batch_size=batch_size, seed=seed, **options)
        self.plan = BatchPlan(len(dataset), batch_size, batches, seed)

    def __len__(self) -> int:
        return len(self.plan)

    def __iter__(self) -> Iterator[list[int]]:
        return ([index for _, index in batch] for batch in self.plan)


@dataclass
class Clock(TrainerCallback):
    """Records when each step ends, and stops the training when its time is over."""

    seconds: float = math.inf
    began: float = 0.0
    ends: list[float] = field(default_factory=list)

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self.began = time.perf_counter()

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self.ends.append(time.perf_counter())
        if self.ends[-1] - self.began >= self.seconds:
            control.should_training_stop = True


@dataclass
class Tokens:
    """The input of a side's transformer: texts, their tokens, and the tokens with padding."""

    texts: int = 0
    real: int = 0
    computed: int = 0

    def count_in(self, side: Side) -> Tokens:
        side.matcher.tower.model[0].register_forward_pre_hook(self._count)
        return self

    def _count(self, _: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
        mask = inputs[0]["attention_mask"]
        self.texts += len(mask)
        self.real += int(mask.sum())
        self.computed += mask.numel()


def loss_on_first_batch(side: Side) -> float:
    """The side's loss on the first batch, without dropout."""
    trainer: Any = side.trainer(steps=1, seed=0)
    (examples,) = BatchPlan(side.queries, BATCH_SIZE, 1, seed=0)
    batch = send_to_device(trainer.data_collator(side.batch(examples)), trainer.args.device)
    with torch.no_grad():
        return float(trainer.compute_loss(trainer.model.eval(), batch))
