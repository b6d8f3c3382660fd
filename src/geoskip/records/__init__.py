"""What a run leaves behind, as plain data: the program writes it, tables and the report read it."""

from geoskip.records.run_record import RecordError, RunRecord, read_record, write_record
from geoskip.records.samples import (
    CorrespondenceSamples,
    GraphSamples,
    MatchedMesh,
    MeshLevel,
    MeshSamples,
    Samples,
    read_samples,
    write_samples,
)

# What `geoskip evaluate` draws in a run's folder of pictures.
EVALUATION_PICTURES = ("reconstructions.png", "mean-error.png", "matches.png", "geodesic.png", "confusion.png")

__all__ = [
    "EVALUATION_PICTURES",
    "CorrespondenceSamples",
    "GraphSamples",
    "MatchedMesh",
    "MeshLevel",
    "MeshSamples",
    "RecordError",
    "RunRecord",
    "Samples",
    "read_record",
    "read_samples",
    "write_record",
    "write_samples",
]
