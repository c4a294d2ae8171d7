"""Pages: of a run (`page`, from what `data` makes of it), while it goes on (`live`), and of a sweep (`sweep`)."""

from archipel.report.page import (
    asked_section,
    cards_of,
    flattened,
    moment,
    news,
    report_page,
    shown_number,
    size,
    status_page,
    summary,
    write_comparison,
    write_report,
)

__all__ = [
    "asked_section",
    "cards_of",
    "flattened",
    "moment",
    "news",
    "report_page",
    "shown_number",
    "size",
    "status_page",
    "summary",
    "write_comparison",
    "write_report",
]
