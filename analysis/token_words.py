"""Token ids as words, for logs that keep ids and no text: enough to see copies and to tell prompts apart, not to read."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def with_ids_as_words(table: pa.Table) -> pa.Table:
    """Put the response's ids in place of `thinking_text` where a row has neither response text nor thinking, but has ids.

    Such a log says nothing about where thinking ends, so the whole response stands in for it. Only for comparing texts: whether
    there was thinking is asked of the table as it was.
    """
    bare = pc.and_(
        pc.and_(pc.is_null(table.column("response_text")), pc.is_null(table.column("thinking_text"))),
        pc.greater(pc.fill_null(pc.list_value_length(table.column("response_ids")), 0), 0),
    )
    if not pc.any(bare).as_py():
        return table
    ids, thinking = table.column("response_ids").to_pylist(), table.column("thinking_text").to_pylist()
    words = [" ".join(map(str, ids[row])) if is_bare else thinking[row] for row, is_bare in enumerate(bare.to_pylist())]
    position = table.schema.get_field_index("thinking_text")
    return table.set_column(position, table.schema.field(position), pa.array(words, table.schema.field(position).type))
