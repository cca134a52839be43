"""Results that are computed once and stored: encodings of texts, and teacher scores."""

from limbeck.stores.encodings import EncodingStore, encode_with_store, store_path
from limbeck.stores.ragged import Ragged
from limbeck.stores.scores import ScoreStore, score_with_store

__all__ = ["EncodingStore", "Ragged", "ScoreStore", "encode_with_store", "score_with_store", "store_path"]
