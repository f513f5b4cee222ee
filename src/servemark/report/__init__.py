"""The single-file HTML report: draws what `analysis.report_data` returns, and computes nothing but pixels.

`page.render_report` makes one self-contained page; `page.write_report` puts it on disk whole or not at all.
"""
