import subprocess
import sys
from pathlib import Path

import pytest

from limbeck.data import load
from limbeck.errors import LimbeckError
from tests.data.folders import beir_folder, write


def test_a_path_may_be_a_string_or_a_path(tmp_path: Path) -> None:
    folder = beir_folder(tmp_path / "a")
    assert load(folder).name == load(str(folder)).name == "a"


def test_nothing_there_says_what_could_be(tmp_path: Path) -> None:
    with pytest.raises(LimbeckError, match="no such file or folder; give a folder, a pair file, `hf:owner/name`"):
        load(tmp_path / "nothing")


def test_a_folder_without_a_data_set_names_the_expected_files(tmp_path: Path) -> None:
    write(tmp_path / "holiday.jpg", "x")
    with pytest.raises(LimbeckError, match=r"is not a data set.*corpus\.jsonl.*collection\.tsv.*psgs_w100\.tsv.*pairs"):
        load(tmp_path)


def test_reading_data_does_not_import_torch() -> None:
    code = "import sys, limbeck.data; sys.exit('torch' in sys.modules or 'limbeck.data.pydocs' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
