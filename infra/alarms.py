"""When somebody has to be told: each alarm with what it means and what to do first.

Owns thresholds that are no knobs, and what missing data means. An idle stack writes nothing, so for nearly all of them
no data is good data; the NAT instance reports every minute for as long as there is one, so there it is not.

An alarm costs $0.10 a month for each metric in it, the first ten of an account are free. There are 12, one more with a
second API, and those of the way out: 1 for the instance, 2 for each gateway. Errors of the functions behind an API have
none of their own: they are 5xx of the API.
"""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct

from forbear import metrics
from infra.api import Api
from infra.config import StackConfig
from infra.database import Database
from infra.functions import Functions
from infra.network import Network
from infra.schedule import Schedules
from infra.series import FIVE_MINUTES, MINUTE, aws, nat_gateway_ids, own

_QUARTER = cdk.Duration.minutes(15)
# No lease lasts longer than its endpoint's timeout, 30 s at most, and 30 s; a tick takes it over within a minute then.
_OLDEST_LEASE_S = 300
_OLDEST_SNAPSHOT_S = 900
_API_ERRORS = 5
_FAILED_WAKE_CALLS = 3
_FULL_PERCENT = 95
_PACKETS_DROPPED = 100


class Alarms(Construct):
    """The alarms.

    Attributes:
        all: Each of them.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        config: StackConfig,
        network: Network,
        database: Database,
        functions: Functions,
        api: Api,
        schedules: Schedules,
        topic: sns.Topic,
    ) -> None:
        """Build them.

        Args:
            scope: The construct that they belong to.
            construct_id: Their name there.
            config: What was chosen.
            network: Whose way out is watched.
            database: Whose capacity is watched.
            functions: Whose failed calls alarm.
            api: Whose errors alarm.
            schedules: Whose ticks must arrive.
            topic: Where alarms go.
        """
        super().__init__(scope, construct_id)
        self.all: list[cloudwatch.Alarm] = []
        self._config = config
        self._topic = topic
        self._watch_deliveries()
        self._watch_waking(functions, schedules)
        self._watch_database(database)
        self._watch_api(api)
        self._watch_nat(network)

    def _watch_deliveries(self) -> None:
        chosen, config = self._config.observability, self._config
        self._alarm(
            "DeadLetters",
            own(config, metrics.FINAL_STATUS, "Sum", value="dead", period=_QUARTER),
            f"More than {chosen.dead_letters} deliveries ended without success within 15 minutes. First: forbear "
            "deliveries list --status dead, and see which endpoint and why; when its receiver works again, replay "
            "them.",
            above=chosen.dead_letters,
        )
        self._alarm(
            "TimeToSuccess",
            own(config, metrics.TIME_TO_SUCCESS, "p95"),
            f"For 15 minutes, 1 in 20 deliveries took longer than {chosen.time_to_success_s} s from event to "
            "success. First: on the dashboard, see whether retries (receivers fail: the outcomes) or waiting (too "
            "few claimers, a database at its ceiling: backlog, oldest ready lane, claim latency) takes the time.",
            above=chosen.time_to_success_s,
            points=3,
        )
        self._alarm(
            "OldestReady",
            own(config, metrics.OLDEST_READY, "Maximum", period=MINUTE),
            f"For 3 minutes, a lane that may go has waited longer than {chosen.oldest_ready_s} s: claimers do not "
            "keep up. First: look at claimers awake against delivery.max_claimers, at the claimer's throttles, and "
            "at the database's capacity; raise what is at its limit.",
            above=chosen.oldest_ready_s,
            points=3,
        )
        self._alarm(
            "OldestLease",
            own(config, metrics.OLDEST_LEASE, "Maximum"),
            f"A delivery has been in flight for more than {_OLDEST_LEASE_S} s, longer than any lease: its claimer "
            "died, and for minutes none took over. First: see in the claimer's log and its errors why it died, and "
            "that the schedule ticks. The delivery is sent again; its receiver may see it twice.",
            above=_OLDEST_LEASE_S,
        )

    def _watch_waking(self, functions: Functions, schedules: Schedules) -> None:
        self._alarm(
            "ScheduleOffWithWork",
            own(self._config, metrics.SCHEDULE_OFF, "Sum"),
            "The sweep found work that had been due for minutes while the schedule did not tick: a wake-up call was "
            "lost and nothing took its place. It is being worked off now. First: look for failed wake calls and "
            "failed calls at that time, and whether somebody switched the schedule off.",
            above=0,
        )
        self._alarm(
            "WakeCallsFailed",
            own(self._config, metrics.WAKE_CALLS_FAILED, "Sum", period=_QUARTER),
            f"{_FAILED_WAKE_CALLS} calls that wake a claimer or switch its schedule failed within 15 minutes; work "
            "waits for the next event, tick or sweep. First: look for the error in the logs (the claimer could not "
            "be called, the schedule could not be switched): throttling, a changed role, or no way out of the "
            "network.",
            above=_FAILED_WAKE_CALLS - 1,
        )
        self._alarm(
            "FailedCalls",
            functions.failures.metric_approximate_number_of_messages_visible(statistic="Maximum", period=FIVE_MINUTES),
            "A tick, a sweep, a wake-up call or the maintenance failed for good; its message lies in the queue of "
            "failed calls. First: read the message, which says why, then the log of the function; when it is "
            "mended, purge the queue. The work itself is safe in the database.",
            above=0,
        )

        self._alarm(
            "ClaimerThrottled",
            functions.claimer.metric_throttles(statistic="Sum", period=FIVE_MINUTES),
            "Calls of the claimer were refused in 2 of 3 spans of 5 minutes, because too many functions run. While "
            "none gets through nothing is delivered, and the other alarms may keep silent, for it is claimers that "
            "measure. First: in Lambda, compare the account's concurrent executions with its quota, and ask for more "
            "(Service Quotas); or, if it is set, raise functions.reserved_concurrency.claimer above "
            "delivery.max_claimers.",
            above=0,
            points=2,
            of=3,
        )
        self._alarm(
            "ScheduleDropped",
            aws("Scheduler", "InvocationDroppedCount", "Sum", ScheduleGroup=schedules.group.schedule_group_name),
            "For 10 minutes ticks could not be delivered to the claimer. While claimers run nothing is late, for "
            "they call their successors. First: the queue of failed calls says why; look at the schedule's role, "
            "and at the account's concurrency.",
            above=0,
            points=2,
        )

    def _watch_api(self, api: Api) -> None:
        for name, each in api.all.items():
            self._alarm(
                f"{name}ApiErrors",
                each.metric_server_error(statistic="Sum", period=FIVE_MINUTES),
                f"At least {_API_ERRORS} requests were answered 5xx in 2 of 3 spans of 5 minutes; events may not get "
                "in. A few 503 while a paused database wakes are normal. First: the log of ingest, for 'database "
                "unavailable' or 'unforeseen error'; producers that repeat a request with its Idempotency-Key lose "
                "nothing.",
                above=_API_ERRORS - 1,
                points=2,
                of=3,
            )

    def _watch_database(self, database: Database) -> None:
        self._alarm(
            "CapacityAtCeiling",
            database.cluster.metric_acu_utilization(statistic="Average", period=FIVE_MINUTES),
            f"For 15 minutes the database has used {_FULL_PERCENT} % of its capacity or more. First: on the "
            "dashboard, see whether events, retries or claims have grown; if the load is rightful, raise "
            "database.max_acu.",
            above=_FULL_PERCENT - 0.01,
            points=3,
        )
        self._alarm(
            "OldestSnapshot",
            own(self._config, metrics.OLDEST_SNAPSHOT, "Maximum"),
            f"A transaction has been open for more than {_OLDEST_SNAPSHOT_S // 60} minutes; vacuum cannot clear what "
            "the queue leaves behind, and claims get slower by the minute. First: in pg_stat_activity, find the "
            "session with the oldest xact_start, and end it by pg_terminate_backend.",
            above=_OLDEST_SNAPSHOT_S,
        )

    def _watch_nat(self, network: Network) -> None:
        for number, instance in enumerate(network.nat_instance_ids, 1):
            self._alarm(
                f"NatInstance{number}",
                aws("EC2", "StatusCheckFailed", "Maximum", period=MINUTE, InstanceId=instance),
                "The NAT instance fails its status checks, or does not run: nothing is delivered, and events get in "
                "but wake nobody. If hardware is the cause, EC2 moves it by itself within minutes. First: in the EC2 "
                "console, see which check fails; reboot it, or start it if somebody stopped it. What waited goes out "
                "by itself.",
                above=0,
                points=2,
                missing=cloudwatch.TreatMissingData.BREACHING,
            )
        for number, gateway in enumerate(nat_gateway_ids(network), 1):
            self._alarm(
                f"NatGateway{number}",
                cloudwatch.MathExpression(
                    expression="ports + dropped",
                    label="connections and packets lost",
                    using_metrics={
                        "ports": aws("NATGateway", "ErrorPortAllocation", "Sum", NatGatewayId=gateway),
                        "dropped": aws("NATGateway", "PacketsDropCount", "Sum", NatGatewayId=gateway),
                    },
                    period=FIVE_MINUTES,
                ),
                "A NAT gateway has no port left for a connection, or drops packets: attempts fail as if receivers "
                "could not be reached. First: if one receiver gets most of the traffic, lower its endpoint's "
                "concurrency; otherwise look at the AWS Health Dashboard.",
                above=_PACKETS_DROPPED,
                points=2,
            )

    def _alarm(
        self,
        name: str,
        metric: cloudwatch.IMetric,
        description: str,
        *,
        above: float,
        points: int = 1,
        of: int | None = None,
        missing: cloudwatch.TreatMissingData = cloudwatch.TreatMissingData.NOT_BREACHING,
    ) -> None:
        """One alarm, which tells of its end too.

        Args:
            name: The construct's.
            metric: What is watched.
            description: What it means, and what to do first.
            above: It rings above this,
            points: for so many points
            of: out of so many; None: in a row.
            missing: What a point without data counts as.
        """
        alarm = cloudwatch.Alarm(
            self,
            name,
            metric=metric,
            alarm_description=description,
            threshold=above,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            evaluation_periods=of or points,
            datapoints_to_alarm=points,
            treat_missing_data=missing,
        )
        tell = actions.SnsAction(self._topic)
        alarm.add_alarm_action(tell)
        alarm.add_ok_action(tell)
        self.all.append(alarm)
