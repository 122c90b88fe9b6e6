"""How long attention takes on a GPU that need not be here; docs/prediction.md derives it."""

from fa_bench.prediction.predict import implementations, predict_time
from fa_bench.prediction.result import TimePrediction

__all__ = ["TimePrediction", "implementations", "predict_time"]
