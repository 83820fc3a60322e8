"""Panels, variables and links as all dashboards have them, made of Grafana's builders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grafana_foundation_sdk.builders import common, prometheus, stat, table, timeseries
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.common import (
    BigValueGraphMode,
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
    VisibilityMode,
)
from grafana_foundation_sdk.models.dashboard import (
    Dashboard,
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    FieldColorModeId,
    Panel,
    Threshold,
    ThresholdsMode,
    ValueMapping,
    VariableModel,
    VariableOption,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from helm.dashboards.promql import of

Part = Builder[Panel] | build.Row

# The dashboard's own variable, so that it works with any Prometheus.
DATASOURCE = DataSourceRef("prometheus", "${datasource}")
GRID_WIDTH = 24
TAG = "braid"
QUERY_DASHBOARD = "braid-query"

MAX_NOTE = "“max” is the upper edge of the highest histogram bucket that was hit."
TOP_NOTE = "Shows the “Top” greatest at each moment."
QUERY_LEGEND = "{{name}} ({{query_id}})"


def figure(
    title: str,
    expression: str,
    description: str,
    unit: str = units.Short,
    width: int = 3,
    mappings: Sequence[ValueMapping] = (),
) -> stat.Panel:
    """Make one number, with a spark line behind it."""
    return (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .span(width)
        .height(4)
        .unit(unit)
        .mappings(list(mappings))
        .color_scheme(build.FieldColor().mode(FieldColorModeId.THRESHOLDS))
        .thresholds(_steps())
        .graph_mode(BigValueGraphMode.AREA)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .with_target(_target(expression, title, "A"))
    )


def series(
    title: str,
    expressions: Mapping[str, str],
    description: str,
    unit: str,
    width: int = 12,
    stacked: bool = False,
    from_zero: bool = True,
) -> timeseries.Panel:
    """Make lines from legend → expression; their legend is a table sorted by the last value."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .span(width)
        .height(8)
        .unit(unit)
        .line_width(1)
        .fill_opacity(40 if stacked else 10)
        .show_points(VisibilityMode.NEVER)
        .color_scheme(build.FieldColor().mode(FieldColorModeId.PALETTE_CLASSIC))
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING))
        .legend(
            common.VizLegendOptions()
            .display_mode(LegendDisplayMode.TABLE)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(True)
            .calcs(["lastNotNull", "max"])
            .sort_by("Last *")
            .sort_desc(True)
        )
    )
    if stacked:
        panel = panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL).group("A"))
    if from_zero:
        panel = panel.min(0)
    for number, (legend, expression) in enumerate(expressions.items()):
        panel = panel.with_target(_target(expression, legend, _ref_id(number)))
    return panel


def listing(
    title: str,
    expressions: Mapping[str, str],
    labels: Mapping[str, str],
    description: str,
    units_of: Mapping[str, str],
    sort_by: str,
    unit: str = units.Seconds,
) -> table.Panel:
    """Make a table of what is now: one line for each combination of `labels`, one column for each expression.

    `labels` maps a label to its column's title. The column `query` leads to the dashboard of that query.
    """
    panel = (
        table.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .span(GRID_WIDTH)
        .height(10)
        .unit(unit)
        .decimals(3)
        .sort_by([common.TableSortByFieldState().display_name(sort_by).desc(True)])
    )
    values = {}
    for number, (column, expression) in enumerate(expressions.items()):
        target = _target(expression, column, _ref_id(number)).instant().format(PromQueryFormat.TABLE)
        panel = panel.with_target(target)
        # of one expression alone, Grafana names the column without its letter
        values["Value" if len(expressions) == 1 else f"Value #{_ref_id(number)}"] = column
    for column, its_unit in units_of.items():
        panel = panel.override_by_name(column, [DynamicConfigValue("unit", its_unit)])
    link = {
        "title": "How ${__value.text} does",
        "url": f"/d/{QUERY_DASHBOARD}?var-query=${{__value.text}}&${{datasource:queryparam}}"
        "&${namespace:queryparam}&${job:queryparam}&${__url_time_range}",
    }
    return (
        panel.override_by_name("query", [DynamicConfigValue("links", [link])])
        .with_transformation(DataTransformerConfig("merge", options={}))
        .with_transformation(
            DataTransformerConfig(
                "organize",
                options={
                    "excludeByName": {"Time": True},
                    "indexByName": {column: place for place, column in enumerate([*labels, *values])},
                    "renameByName": {**labels, **values},
                },
            )
        )
    )


def row(title: str) -> build.Row:
    """Make a heading over the panels that follow."""
    return build.Row(title)


def choice(name: str, label: str, expression: str, several: bool = True, regex: str = "") -> build.QueryVariable:
    """Make a variable that Prometheus fills in; of several values, All also matches where there is none."""
    variable = (
        build.QueryVariable(name)
        .label(label)
        .datasource(DATASOURCE)
        .query({"query": expression, "refId": f"variable-{name}", "qryType": 5})
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_CASE_INSENSITIVE_ASC)
        .multi(several)
        .include_all(several)
        .regex(regex)
    )
    if several:
        variable = variable.all_value(".*").current(VariableOption(selected=True, text=["All"], value=["$__all"]))
    return variable


def queries(several: bool) -> build.QueryVariable:
    """Make the variable that chooses queries; their names are shown, their ids are put into the expressions."""
    name_and_id = r"""/(?:[{,]name="(?<text>[^"]*)".*)?query_id="(?<value>[^"]+)"/"""
    return choice("query", "Query", f"query_result({of('braid_query_info')})", several, name_and_id)


def top() -> build.CustomVariable:
    """Make the variable that says how many series a panel of queries shows."""
    numbers = ("10", "25", "50", "100", "1000")
    return (
        build.CustomVariable("top")
        .label("Top")
        .description("How many queries a panel of queries shows at each moment")
        .values(",".join(numbers))
        .options([VariableOption(selected=n == "25", text=n, value=n) for n in numbers])
        .current(VariableOption(selected=True, text="25", value="25"))
    )


def dashboard(
    uid: str,
    title: str,
    description: str,
    variables: Sequence[Builder[VariableModel]],
    panels: Sequence[Part],
) -> Dashboard:
    """Make a dashboard, with links to the others; the panels stand in reading order."""
    made = (
        build.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags([TAG])
        .editable()
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .refresh("10s")
        .time("now-30m", "now")
        .timezone("browser")
        .link(
            build.DashboardLink("Braid")
            .type(DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .include_vars(True)
            .keep_time(True)
        )
        .with_variable(build.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(choice("namespace", "Namespace", "label_values(braid_ready, namespace)"))
        .with_variable(choice("job", "Job", 'label_values(braid_ready{namespace=~"$namespace"}, job)', several=False))
    )
    for variable in variables:
        made = made.with_variable(variable)
    for panel in panels:
        made = made.with_row(panel) if isinstance(panel, build.Row) else made.with_panel(panel)
    built = made.build()
    for number, each in enumerate(built.panels or [], start=1):
        each.id_val = number
    return built


def _target(expression: str, legend: str, ref_id: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(expression).legend_format(legend).ref_id(ref_id).datasource(DATASOURCE).range()


def _ref_id(number: int) -> str:
    return chr(ord("A") + number)


def _steps() -> build.ThresholdsConfig:
    return build.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps([Threshold(value=None, color="blue")])
