"""The plan of a scoring job: the request, and the decisions of its first call. `job.json` contains both."""

from __future__ import annotations

import math
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from limbeck import __version__
from limbeck.errors import bad_input
from limbeck.files import digest, read_json, write_json
from limbeck.stores.manifest import canonical

# Readers of parquet folders skip names that begin with an underscore, so the job's folder can be read as its scores.
SCORES, OWN = "scores", "_job"
JOB, HEAD, DONE = f"{OWN}/job.json", f"{OWN}/head", f"{OWN}/done.json"
WORK, PARTS, ENCODINGS = f"{OWN}/work", f"{OWN}/parts", f"{OWN}/encodings"
FORMAT = 3


class Asked(BaseModel):
    """The request of the user."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    model: str
    identity: str  # digest of the model's weights and configuration
    source: str  # digest of the content of the pairs' files
    pairs_file: str | None
    left: str | None
    right: str | None
    top_k: int | None
    dtype: str
    store: str | None
    columns: str | None
    asked: str  # the requested head
    runtime: str = "torch"  # what runs the model's transformers

    @property
    def list_file(self) -> Path | None:
        return Path(self.pairs_file) if self.pairs_file else None


class Plan(Asked):
    """The request and everything else that decides the files of the job."""

    pairs: int
    shard: int
    stores: list[str]  # stores of each position, as absolute paths or relative to the job's folder
    head: str  # the chosen head
    batch: int  # pairs per batch: fixed, because the last digit of sums depends on it
    format: int = FORMAT
    limbeck: str = __version__

    @property
    def shards(self) -> int:
        return math.ceil(self.pairs / self.shard)

    def write(self, folder: Path) -> None:
        record = self.model_dump()
        write_json(folder / JOB, {**record, "checksum": digest(canonical(record))})

    @classmethod
    def read(cls, folder: Path) -> Plan:
        """The plan of a job's folder; without it, nobody knows how the scores were made."""
        place = folder / JOB
        remedy = f"remove it and {folder / SCORES}, and run the same command again"
        record = read_json(place, remedy)
        if not isinstance(record, dict):
            raise bad_input(place, "is damaged (it is not a record)", remedy)
        written = record.pop("checksum", None)
        if written != digest(canonical(record)):
            raise bad_input(place, "is damaged or was edited: its checksum does not match its content", remedy)
        if record.get("format") != FORMAT:
            raise bad_input(place, f"has format {record.get('format')}", "use the version of limbeck that wrote it")
        try:
            return cls.model_validate(record)
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"]))
            raise bad_input(place, f"is damaged ({key}: {first['msg']})", remedy) from error
