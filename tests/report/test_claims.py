import re
from dataclasses import replace

from geoskip.report.html_tables import ClaimRow, claims_sentence, claims_table, first_claim_sentence

ROW = ClaimRow("It helps", "A against B", ("faces", "full"), "faces", 3, "+0.1 mm", "+0.2 mm", 0.0004, "holds")


def test_every_claim_is_a_row_with_its_verdict() -> None:
    rows = [
        ROW,
        replace(ROW, claim="It fails", p=0.02, verdict="fails"),
        replace(ROW, claim="?", p=None, verdict="one seed"),
    ]
    table = claims_table(rows)
    assert table.count("<tr>") == 2 * (1 + len(rows)) + 1
    assert 'class="verdict yes">holds' in table
    assert 'class="verdict no">fails' in table
    assert 'class="verdict open">one seed' in table
    assert "&lt; 0.001" in table
    assert "0.020" in table
    assert table.count("A single seed settles nothing.") == 1


def test_comparisons_of_one_claim_are_counted() -> None:
    rows = [ROW, replace(ROW, compared="C against D", verdict="one seed"), replace(ROW, data="coma", verdict="fails")]
    rows.append(replace(ROW, claim="It is the best"))
    table = claims_table(rows)
    lines = [re.findall(r">([^<>]+)</(?:th|td|span)>", line) for line in table.split("<details>")[0].split("<tr>")[2:]]
    assert lines == [
        ["It helps", "2", "1", "–", "–", "1", "1"],
        ["It is the best", "1", "1", "–", "–", "–", "–"],
        ["All", "2", "1", "–", "–", "1", "1"],
    ]
    assert table.count("<table") == 2
    assert "All 4 comparisons" in table
    assert table.index("A comparison holds or fails") < table.index("<table")
    assert table.index("<details>") < table.index("C against D")


def test_words_are_text() -> None:
    table = claims_table([replace(ROW, claim="<b>", compared="<i>", data="<u>", difference="<s>", verdict="<a>")])
    for tag in ("<b>", "<u>", "<s>", "<a>"):
        assert tag not in table


def test_one_sentence_counts_distinct_comparisons_with_several_seeds() -> None:
    rows = [ROW, replace(ROW, claim="It is the best"), replace(ROW, compared="C against D", verdict="one seed")]
    rows += [replace(ROW, data=name, verdict="same direction, too small to tell") for name in ("coma", "faust")]
    assert "Of 3 comparisons of the paper that have several seeds here, <b>1 holds</b> signif" in claims_sentence(rows)
    assert "2 are too close to tell and <b>none fails</b>" in claims_sentence(rows)
    failed = [ROW, replace(ROW, claim="A < B", data="coma", verdict="fails")]
    assert claims_sentence(failed).endswith("none are too close to tell and <b>1 fails</b>: “A &lt; B” (coma).")
    assert claims_sentence(rows[2:3]) == ""
    assert claims_sentence([]) == ""


def test_one_sentence_says_what_the_first_claim_has_come_to() -> None:
    verdicts = ("same direction, too small to tell", "opposite direction, too small to tell", "one seed")
    rows = [ROW, *(replace(ROW, compared=f"{verdict} against B", verdict=verdict) for verdict in verdicts)]
    rows.append(replace(ROW, claim="It fails", verdict="fails"))
    assert first_claim_sentence(rows) == "<b>It helps in 2 of 3 comparisons</b>, significantly in 1."
    assert first_claim_sentence(rows[2:]) == ""
    assert first_claim_sentence([]) == ""
