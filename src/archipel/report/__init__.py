"""Pages: of a run (`page`, from what `data` makes of it), while it goes on (`live`), and of a sweep (`sweep`)."""

from archipel.report.page import cards_of, moment, news, report_page, size, status_page, summary

__all__ = ["cards_of", "moment", "news", "report_page", "size", "status_page", "summary"]
