"""What is said of runs: which rows are compared with each other, the verdicts, and the sentences below a table."""

import math
from dataclasses import replace

from runs import accuracies, everything, result
from scipy.stats import entropy

from acenode.paper.tables import TABLES
from acenode.report import compared, words
from acenode.report.explanations import explained
from acenode.report.overview import findings
from acenode.report.pairs import pairs
from acenode.report.sentences import (
    accidents,
    budgets,
    choices,
    copies,
    evenness,
    mixtures,
    movements,
    not_run,
    optima,
    outdated,
    rates,
    search,
    without_training,
)


def line(results, table="mnist", row="ODE-Net"):
    return next(c for c in compared.tables(results)[table] if c.row == row)


def test_full_runs_take_the_place_of_quick_ones():
    quick = accuracies("mnist", "ODE-Net", 0.1, 0.1, config={"quick": True, "epochs": 16})
    assert line([*quick, *accuracies("mnist", "ODE-Net", 0.9)]).values == [0.9]
    assert line(quick).quick and words.against_paper(line(quick)).startswith(
        "worse than published so far, quick run after 16"
    )


def test_a_row_without_training_has_no_budget():
    untrained = result("ushcn", "LOCF", 0, {"mse": 1.0}, epochs=0, config={})
    own = line([replace(untrained, parameters=0)], "ushcn", "LOCF")
    assert not own.short and words.budget(own) == "not trained" and words.against_paper(own) == "not in the paper"
    assert words.validation(own) == "\N{EM DASH}"


def test_a_row_that_only_we_have_is_as_long_as_its_recipe():
    (row,) = [r for r in TABLES["physionet-classification"] if r.name == "Latent-ODE (ODE Enc.), with statistics"]
    runs = [result(row.table, name, 0, {"auc": 0.8}, epochs=row.epochs) for name in (row.name, "Latent-ODE (ODE Enc.)")]
    lines = {line.row: line for line in compared.tables(runs)[row.table] if line.runs}
    assert words.budget(lines[row.name]) == f"{row.epochs} epochs"
    assert words.budget(lines["Latent-ODE (ODE Enc.)"]) == f"{row.epochs} of 30 epochs"


def test_of_a_pair_either_may_be_short():
    base, own = (
        result("ushcn", n, 0, {"mse": 0.5}, epochs=epochs)
        for n, epochs in (("GRU-ODE-Bayes", 100), ("ACE-GRU-ODE-Bayes, self-decay", 300))
    )
    lines = compared.tables([base, own])["ushcn"]
    (pair,) = [p for p in pairs("ushcn", lines) if p.one.row == own.row and p.gap and p.one.metric == "mse"]
    assert not pair.one.short and pair.other.short and pair.short
    assert words.size(pair.other) == "1 x 100 of 300" and words.size(pair.one) == "1 x 300"


def test_a_short_run_of_a_row_that_only_we_have_is_not_held_against_the_paper():
    lines = compared.tables([result("double-ou", "GRU-ODE-Bayes", 0, {"negll": -1.0, "mse": 0.1}, epochs=10)])
    said, last = budgets(lines["double-ou"])
    assert said.startswith("Runs of rows that the paper does not have had fewer epochs") and "(10 of 30" in said
    assert last == "1 of these 1 runs were best in their last epoch: more may change them."


def test_runs_that_ran_away_are_told_as_such():
    lost = line(accuracies("mnist", "ODE-Net", 0.9, float("inf")))
    assert words.ours(lost) == "1 of 2 runs diverged" and words.difference(lost.gap, 4) == ""
    nothing = line(accuracies("mnist", "ODE-Net", float("nan"), float("nan")))
    assert words.ours(nothing) == "2 of 2 runs diverged"
    assert words.number(436772.2938, 4) == "4.4e+05"


def test_numbers_have_the_papers_decimals():
    climate = compared.tables([])["ushcn"][0]
    assert words.published(climate) == "0.96 ± 0.11"
    assert words.number(-0.00001, 4, sign=True) == "0.0000" and words.number(-0.5, 1) == "\N{MINUS SIGN}0.5"


def test_what_the_learning_rates_were_chosen_among_is_told():
    grid = [{"learning_rate": rate, "penalty": 0.0, "validation": 1.0} for rate in (0.001, 0.01)]
    runs = [result("ushcn", row, 0, {"negll": 1.0, "mse": 1.0}) for row in ("GRU-D", "T-LSTM")]
    assert not choices(compared.tables(runs)["ushcn"])
    runs = [replace(run, config={**run.config, "learning_rate": 0.01}) for run in runs]
    runs[0] = replace(runs[0], config={**runs[0].config, "grid": grid})
    one, others = choices(compared.tables(runs)["ushcn"])
    assert one == "Validation data chose a learning rate of 0.01 among 0.001 and 0.01 for GRU-D."
    assert others == "For the other rows, which had 0.01, nothing was chosen."
    wider = [*grid, {"learning_rate": 0.1, "penalty": 0.1, "validation": 1.0}]
    runs[1] = replace(runs[1], config={**runs[0].config, "grid": wider})
    _, another, lambdas = choices(compared.tables(runs)["ushcn"])
    assert another == "Validation data chose a learning rate of 0.01 among 0.001, 0.01 and 0.1 for T-LSTM."
    assert lambdas == "They also chose lambda for T-LSTM."
    runs[1] = replace(runs[1], config=runs[0].config)
    (both,) = choices(compared.tables(runs)["ushcn"])
    assert both.endswith("for GRU-D and T-LSTM.")


def test_a_copy_of_the_data_that_is_as_good_is_named_and_compared():
    run, other = (
        result("svhn", "ODE-Net", 0, {"accuracy": 0.9}, protocol=p) for p in ("comparable", "another question")
    )
    copy = replace(run, protocol="regenerated SVHN, comparable")
    for each, comparable, named in ((run, True, 0), (copy, True, 1), (other, False, 0)):
        lines = [line for line in compared.tables([each])["svhn"] if line.runs]
        assert all((not line.other_protocol) == comparable for line in lines) and len(copies(lines)) == named


def test_models_are_held_against_the_best_there_can_be():
    scores = {"exact filter": (-1.25,), "GRU-ODE-Bayes": (-1.1, -0.9)}
    runs = [
        result("double-ou", row, k, {"negll": v, "mse": 1.0}) for row, vs in scores.items() for k, v in enumerate(vs)
    ]
    (said,) = optima(compared.tables(runs)["double-ou"])
    assert "NegLL of \N{MINUS SIGN}1.2500" in said and said.endswith("above it: GRU-ODE-Bayes 0.2500.")
    assert not optima(compared.tables(runs[1:])["double-ou"])


def test_unequal_recipes_are_not_passed_over():
    other = {"epochs": 160, "learning_rate": 0.01, "batch_size": 64}
    runs = [*accuracies("cifar10", "ODE-Net", 0.9, 0.91, config={**other, "batch_size": 128, "eval_batch": 7})]
    for size, alike in ((128, True), (64, False)):
        attentive = accuracies(
            "cifar10", "ACE-ODE-Net", 0.9, 0.92, config={**other, "batch_size": size, "eval_batch": 9}
        )
        (pair,) = pairs("cifar10", compared.tables([*runs, *attentive])["cifar10"])
        assert pair.alike == alike


def test_an_ablation_has_the_spread_that_another_table_prints():
    runs = [result("activity", "ACE-Latent-ODE (ODE Enc.)", k, {"accuracy": v}) for k, v in enumerate((0.8, 0.85, 0.9))]
    made = compared.tables(runs)
    (own,) = [line for line in made["activity"] if line.runs]
    (again,) = [line for line in made["attention-type"] if line.runs]
    assert own.gap == again.gap and again.published is not None and again.published.sd is None


def test_unequal_budgets_are_not_passed_over():
    results = [
        *accuracies("cifar10", "ODE-Net", 0.9, 0.91),
        *accuracies("cifar10", "ACE-ODE-Net", 0.9, 0.92, epochs=10),
    ]
    (pair,) = pairs("cifar10", compared.tables(results)["cifar10"])
    assert words.pair(pair).endswith("not with the same settings")


def test_runs_from_before_a_setting_changed_are_named_and_not_held_against_new_ones():
    rows = ("GRU-ODE-Bayes", "ACE-GRU-ODE-Bayes, conditioned")
    plain, conditioned = (next(row for row in TABLES["ushcn"] if row.name == name) for name in rows)
    old = [result("ushcn", plain.name, k, {"mse": 1.0 + k, "negll": 1.0}) for k in (0, 1)]
    new = [result("ushcn", conditioned.name, k, {"mse": 1.0, "negll": 1.0}, config=conditioned.config) for k in (0, 1)]
    lines = [line for line in compared.tables([*old, *new])["ushcn"] if line.runs]
    assert outdated(lines) == [
        "The runs of GRU-ODE-Bayes do not have today's settings, or did not write them down "
        f"({words.listed(list(plain.config))}): to reproduce them is to train them again."
    ]
    assert all(words.pair(pair).endswith("not with the same settings") for pair in pairs("ushcn", lines))


def test_names_with_commas_are_listed_with_semicolons():
    assert words.listed(["a"]) == "a" and words.listed(["a", "b", "c"]) == "a, b and c"
    assert words.listed(["a", "b, new", "c"]) == "a; b, new; and c"


def test_what_went_wrong_and_what_was_otherwise_is_told():
    note = "member (seed=0): 294 updates were skipped because the loss or its gradient was not finite; lower the rate."
    runs = [
        *accuracies("mnist", "ODE-Net", 0.9, 0.91, notes=(note,)),
        *accuracies("mnist", "ACE-ODE-Net", 0.9, config={"epochs": 160, "learning_rate": 0.05}),
        replace(accuracies("mnist", "ACE-ODE-Net", 0.9, epochs=9)[0], seed=1),
    ]
    lines = compared.tables(runs)["mnist"]
    assert accidents(lines) == [
        "In 2 of the runs of ODE-Net, 294 updates were left out because the loss or its gradient was not finite."
    ]
    assert rates(lines) == ["ACE-ODE-Net had a learning rate of 0.05, where the recipe has 0.01."]
    assert mixtures(lines) == ["The runs of ACE-ODE-Net are not of one kind."]
    assert not_run(lines) == ["Not run yet: ResNet, RKNet and Augmented-ODE-Net."]


def test_how_much_the_attention_moves_is_told():
    moving = {"attention": {"matrices": [[[0.5, 0.5], [1, 0]], [[0.25, 0.75], [1, 0]]]}}
    gates = {"attention_maps": {"maps": [], "moved": [0.0, 0.125]}}
    runs = [
        *accuracies("mnist", "ODE-Net", 0.9),
        *accuracies("mnist", "ACE-ODE-Net", 0.9, figures=gates),
        *accuracies("mnist", "ACE-ODE-Net (deep g)", 0.9, figures=moving),
    ]
    weights, of_gates = movements(compared.tables(runs)["mnist"])
    assert weights.endswith("averaged over test samples, least and most of the runs: ACE-ODE-Net (deep g) 0.2500.")
    assert of_gates.endswith("from first to last, least and most of the runs: ACE-ODE-Net 0.1250.")
    lost = accuracies("mnist", "ACE-ODE-Net", float("nan"), figures=gates)
    assert not movements(compared.tables(lost)["mnist"])


def test_an_attention_that_ends_as_a_mean_is_told():
    def ending(weights):
        return {"attention": {"matrices": [weights] * 2, "entropy": [0.0, entropy(weights, axis=1).mean()]}}

    runs = [
        *accuracies("ushcn", "ACE-GRU-ODE-Bayes, conditioned", 0.9, figures=ending([[0.5, 0.5], [0.51, 0.49]])),
        replace(
            accuracies("ushcn", "ACE-GRU-ODE-Bayes, conditioned", 0.9, figures=ending([[0.5, 0.5], [0.9, 0.1]]))[0],
            seed=1,
        ),
        *accuracies("ushcn", "ACE-GRU-ODE-Bayes", 0.9, figures=ending([[0.7, 0.3], [0.7, 0.3]])),
    ]
    assert evenness(compared.tables(runs)["ushcn"]) == [
        "At the end the attention is even and does not choose: ACE-GRU-ODE-Bayes, conditioned (1 of 2 runs)."
    ]


def test_an_attention_is_also_held_against_one_that_does_not_choose():
    rows = ("GRU-ODE-Bayes, channel-independent", "GRU-ODE-Bayes, uniform attention")
    own = "ACE-GRU-ODE-Bayes, between variables"
    scores = dict(zip((*rows, own), (0.3, 0.1, 0.2), strict=True))
    runs = [
        result("double-ou", row, k, {"negll": score + 0.001 * k**2 * (row == own)}, epochs=30)
        for row, score in scores.items()
        for k in (0, 1, 2)
    ]
    made = compared.tables(runs)
    held = {pair.other.row: pair.effect for pair in pairs("double-ou", made["double-ou"])}
    assert held == dict(zip(rows, ("helps", "hurts"), strict=True))
    counted, _, away = findings(made)
    assert "in 1 comparison of" in counted and "hurts in 1 (Double" in counted
    assert "its control may explain" in away and f"Uhlenbeck: {own}, +0.10" in away
    alone = compared.tables([run for run in runs if run.row != rows[1]])
    assert "ACE-GRU-ODE-Bayes, between variables, its control not run)" in findings(alone)[0]
    assert len(findings(alone)) == 2


def test_an_attention_that_makes_runs_run_away_is_told_with_the_seeds_in_which_it_is_worse():
    plain = [result("ushcn", "GRU-ODE-Bayes", k, {"mse": 0.5}) for k in range(3)]
    own = [result("ushcn", "ACE-GRU-ODE-Bayes", k, {"mse": mse}) for k, mse in enumerate((0.6, 0.4, 1e9))]
    made = compared.tables([*plain, *own])
    (pair,) = [p for p in pairs("ushcn", made["ushcn"]) if p.gap]
    assert pair.effect == "diverges" and words.ours(pair.one) == "1 of 3 runs diverged, median 0.6000"
    assert words.reason(pair) == "ACE-GRU-ODE-Bayes: 1 of 3 runs diverged; it is worse in 2 of 3 seeds"
    paper, counted, _ = findings(made)
    assert paper.endswith("USHCN: diverges.")
    assert "makes runs of 1 diverge (USHCN: ACE-GRU-ODE-Bayes)" in counted
    lost = [*accuracies("mnist", "ODE-Net", 0.9, 0.9, 0.9), *accuracies("mnist", "ACE-ODE-Net", 0.95, 0.8, math.nan)]
    (pair,) = pairs("mnist", compared.tables(lost)["mnist"])
    assert pair.one.median == 0.8 and "it is worse in 2 of 3 seeds" in words.reason(pair)


def test_an_interval_as_wide_as_the_score_tells_nothing():
    wide, narrow = ((0.1, 3.0), (0.69, 0.72))
    for values, effect in ((wide, "cannot tell"), (narrow, "no difference seen")):
        runs = [
            *(result("ushcn", "GRU-ODE-Bayes", k, {"negll": 0.7}, protocol="one state") for k in (0, 1)),
            *(result("ushcn", "ACE-GRU-ODE-Bayes, conditioned", k, {"negll": each}, protocol="one state")
              for k, each in enumerate(values)),
        ]  # fmt: skip
        (pair,) = [p for p in pairs("ushcn", compared.tables(runs)["ushcn"]) if p.gap]
        assert (pair.effect, pair.vague) == (effect, values == wide)


def test_rates_that_validation_chose_for_both_may_differ():
    def runs(row, rate, **more):
        return accuracies("cifar10", row, 0.9, 0.91, config={"epochs": 160, "learning_rate": rate, **more})

    def grid(*rates):
        return [{"learning_rate": rate} for rate in rates]

    tuned = [*runs("ODE-Net", 0.1, grid=grid(0.1, 0.01)), *runs("ACE-ODE-Net", 0.01, grid=grid(0.1, 0.01))]
    others = [*runs("ODE-Net", 0.1, grid=grid(0.1, 0.01)), *runs("ACE-ODE-Net", 0.01, grid=grid(0.01, 0.001))]
    half = [*runs("ODE-Net", 0.1), *runs("ACE-ODE-Net", 0.01, grid=grid(0.1, 0.01))]
    alike = [pairs("cifar10", compared.tables(each)["cifar10"])[0].alike for each in (tuned, others, half)]
    assert alike == [True, False, False]
    rows = ("Latent-ODE (ODE Enc.)", "ACE-Latent-ODE (ODE Enc.)")
    fair = [run for row in rows for run in accuracies("activity", row, 0.9, 0.91)]
    assert findings(compared.tables([*half, *fair]))[-1].startswith("In 1 more the rows differ in more")


def test_what_is_not_the_papers_setting_is_held_neither_against_its_numbers_nor_against_its_gain():
    rows = ("GRU-ODE-Bayes", "ACE-GRU-ODE-Bayes")
    runs = [
        result("ushcn", row, k, {"mse": 0.7 + 0.001 * k * (row != rows[0])}, protocol="one state")
        for row in rows
        for k in (0, 1)
    ]
    lines = compared.tables(runs)["ushcn"]
    (pair,) = [p for p in pairs("ushcn", lines) if p.gap]
    assert pair.claimed and pair.expected is None and pair.effect == "no difference seen"
    assert pair.one.gap is None and words.standing(pair.one) == "not comparable: another setting"
    undefined = [result("cifar10", "ODE-Net", 0, {"accuracy": 0.8, "silhouette": 0.3})]
    standings = {c.metric: words.standing(c) for c in compared.tables(undefined)["cifar10"] if c.runs}
    assert standings["silhouette"].startswith("not comparable") and "not comparable" not in standings["accuracy"]


def test_rows_are_held_against_what_needs_no_training():
    simple = [replace(result("ushcn", "LOCF", k, {"mse": 1.0 + k}, epochs=0), parameters=0) for k in (0, 1, 2)]
    rows = {"GRU-D": -0.1, "GRU-Simple": 0.2}
    runs = [result("ushcn", row, k, {"mse": 1.0 + k + by + 0.001 * k}) for row, by in rows.items() for k in (0, 1, 2)]
    assert without_training(compared.tables([*simple, *runs])["ushcn"]) == [
        "Not better than LOCF (MSE) without doubt: GRU-Simple."
    ]
    assert without_training(compared.tables([*simple, *runs[:3]])["ushcn"]) == [
        "Every trained row is better than LOCF (MSE)."
    ]
    assert without_training(compared.tables([*simple, *runs[3:]])["ushcn"]) == [
        "No trained row is better than LOCF (MSE) without doubt."
    ]


def test_an_attention_that_stands_still_is_told():
    still = {"attention": {"matrices": [[[0.5, 0.5], [1, 0]]] * 2, "entropy": [0.3, 0.3]}}
    runs = accuracies("physionet-classification", "ACE-Latent-ODE (ODE Enc.)", 0.9, figures=still)
    _, said = movements(compared.tables(runs)["physionet-classification"])
    assert said == "The attention stands still in ACE-Latent-ODE (ODE Enc.): this row tells nothing of one that moves."


def test_numbers_that_the_paper_does_not_have_get_two_digits_of_their_spread():
    def places(*values):
        runs = [result("double-ou", "GRU-ODE-Bayes", k, {"mse": value}) for k, value in enumerate(values)]
        (line,) = [c for c in compared.tables(runs)["double-ou"] if c.metric == "mse"]
        return words.places(line)

    assert [places(0.00543, 0.00546), places(0.5, 0.7), places(0.5, 0.5), places(0.5), places(0.005)] == [6, 4, 4, 4, 6]


def test_only_what_is_fair_is_counted_and_only_once():
    better, worse = ((0.9, 0.91, 0.92), (0.8, 0.82, 0.81))
    runs = [*accuracies("cifar10", "ODE-Net", *worse), *accuracies("cifar10", "ACE-ODE-Net", *better)]
    runs = [replace(run, metrics={**run.metrics, "silhouette": run.metrics["accuracy"]}) for run in runs]
    paper, said, _ = findings(compared.tables(runs))
    assert paper.endswith("evolves: CIFAR10: helps.")
    assert "in 1 comparison of an attentive model" in said and "helps in 1" in said
    short = accuracies("cifar10", "ODE-Net", *worse, epochs=10)
    (said,) = findings(compared.tables([*short, *runs[3:]]))
    assert said.startswith("No attentive model has been run beside")


def test_of_the_settings_of_the_attention_only_the_choice_of_validation_is_held_against_its_base():
    base, *names = [row.name for row in TABLES["attention-settings"]]
    scores = {base: (0.4, 0.3), names[0]: (0.5, 0.1), names[1]: (0.2, 0.5), names[2]: (0.3, 0.2)}  # validation, test
    runs = [
        replace(result("attention-settings", row, k, {"mse": test}), validation={"validation_mse": known + 0.01 * k})
        for row, (known, test) in scores.items()
        for k in (0, 1, 2)
    ]
    lines = compared.tables(runs)["attention-settings"]
    held = {pair.one.row: (pair.other.row, pair.effect) for pair in pairs("attention-settings", lines)}
    assert held == {names[0]: (base, "helps"), names[1]: (base, "hurts")}  # the first was named before
    (said,) = search(lines)
    assert f"of 3 settings differs from that of {base} by \N{MINUS SIGN}0.2000 to +0.1000" in said
    assert f"zero is not in the intervals of {words.listed([names[1], names[2], names[0]])}." in said
    assert f"The best, {names[1]}, and {names[0]} are compared with {base}" in said
    assert [words.validation(line) for line in lines] == ["0.4100", "0.5100", "0.2100", "0.3100"]
    shorter = [replace(run, config={"epochs": 3}) if run.row == names[1] else run for run in runs]
    (said,) = search(compared.tables(shorter)["attention-settings"])
    assert f"The best, {names[2]}, and" in said and names[1] not in said
    assert not search(compared.tables(everything())["mnist"])


def test_how_an_attention_is_trained_is_not_held_against_a_row_without_one():
    configs = [{"epochs": 160, "learning_rate": 0.01, "algorithm": each} for each in ("joint", "alternating")]
    rows = {"ODE-Net": 0, "ACE-ODE-Net": 1, "ACE-ODE-Net (Large)": 0}
    runs = [r for name, k in rows.items() for r in accuracies("cifar10", name, 0.9, 0.91, config=configs[k])]
    made = compared.tables(runs)
    assert all(pair.alike for pair in pairs("cifar10", made["cifar10"]) if pair.other.row == "ODE-Net")
    assert not any(pair.alike for pair in pairs("attention-size", made["attention-size"]) if pair.gap)


def test_only_rows_that_were_run_are_explained():
    without, called = (
        compared.tables(accuracies("cifar10", row, 0.9))["cifar10"] for row in ("ODE-Net", "x, crops of 28")
    )
    assert not any("rows called crops" in each for each in explained("cifar10", without))
    assert any("rows called crops" in each for each in explained("cifar10", called))


def test_rows_that_differ_in_more_than_the_attention_are_not_alike():
    same = {"epochs": 160, "learning_rate": 0.01}
    runs = [
        run
        for table in ("mnist", "cifar10")
        for row, score in (("ODE-Net", 0.9), ("ACE-ODE-Net", 0.8))
        for run in accuracies(table, row, score, score + 0.01, config=same)
    ]
    made = compared.tables(runs)
    (unlike,), (alike,) = ([p for p in pairs(table, made[table]) if p.gap] for table in ("mnist", "cifar10"))
    assert alike.alike and not unlike.alike
    assert words.pair(unlike).endswith("not alike: f has one convolution, not two")
    paper, _, _, aside = findings(made)
    assert "MNIST: hurts (f has one convolution, not two)" in paper
    assert aside.startswith(
        "In 1 more the rows differ in more than the attention: it helps in none and hurts in 1 (MNIST"
    )
