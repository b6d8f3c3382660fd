"""What a run leaves behind, as plain data: the program writes it, tables and the report read it."""

from geoskip.records.run_record import RecordError, RunRecord, read_record, write_record

__all__ = ["RecordError", "RunRecord", "read_record", "write_record"]
