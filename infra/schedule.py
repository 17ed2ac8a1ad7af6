"""The schedules that start a claimer: the tick, each minute while there is work, and the safety sweep.

Owns the two schedules, what they may do, and what the claimer may do to the tick. The claimer switches that off and on
(`forbear.waking`): UpdateSchedule replaces a schedule as a whole, and the claimer keeps the target as it finds it here,
dead-letter queue and retries included. A deployment that changes the tick also switches it on.
"""

from __future__ import annotations

from typing import Final, cast

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_scheduler_targets as targets
from constructs import Construct

from infra.config import StackConfig
from infra.execution_role import allow
from infra.functions import TICK, Functions

# A tick that is late is worth nothing, for another follows within a minute. 60 s is the least there is.
_MAX_AGE: Final = cdk.Duration.seconds(60)


class Schedules(Construct):
    """Tick and sweep, in a group that is named after the stack.

    Attributes:
        group: The group.
        tick: Once a minute; switched off and on by the claimer.
        sweep: A few times a day, always; finds what a lost call left behind.
    """

    def __init__(self, scope: Construct, construct_id: str, *, config: StackConfig, functions: Functions) -> None:
        """Build them.

        Args:
            scope: The stack.
            construct_id: The construct's name in it.
            config: What was chosen.
            functions: Whose claimer they start.
        """
        super().__init__(scope, construct_id)
        self._functions = functions
        self.group = scheduler.ScheduleGroup(
            self, "Group", schedule_group_name=config.stack_name, removal_policy=cdk.RemovalPolicy.DESTROY
        )
        self._role = self._caller()
        self.tick = self._schedule(TICK, cdk.Duration.minutes(1), "starts a claimer each minute while there is work")
        self.sweep = self._schedule(
            "sweep", cdk.Duration.hours(config.schedule.sweep_hours), "looks for work that a lost call left behind"
        )
        self._let_claimer_switch()

    def _schedule(self, name: str, every: cdk.Duration, about: str) -> scheduler.Schedule:
        schedule = scheduler.Schedule(
            self,
            name.capitalize(),
            schedule_name=name,
            schedule_group=self.group,
            description=f"Forbear: {about}",
            schedule=scheduler.ScheduleExpression.rate(every),
            enabled=True,
            time_window=scheduler.TimeWindow.off(),
            target=targets.LambdaInvoke(
                self._functions.claimer,
                input=scheduler.ScheduleTargetInput.from_object({"forbear": name}),
                retry_attempts=0,
                max_event_age=_MAX_AGE,
                dead_letter_queue=self._functions.failures,
                # The CDK would allow it to invoke every version of the function too.
                role=self._role.without_policy_updates(),
            ),
        )
        # The group is given by its name, and a schedule fires as soon as it is there, with what its role may do then.
        schedule.node.add_dependency(self.group, self._role)
        return schedule

    def _caller(self) -> iam.Role:
        """What the schedules act as: it may invoke the claimer, and say so when that fails."""
        stack = cdk.Stack.of(self)
        role = iam.Role(
            self,
            "Role",
            description="Forbear: what the schedules may do",
            # For this group's schedules only, or whoever may make schedules in this account could use the role.
            assumed_by=iam.ServicePrincipal(
                "scheduler.amazonaws.com",
                conditions={
                    "StringEquals": {"aws:SourceAccount": stack.account},
                    "ArnEquals": {"aws:SourceArn": self.group.schedule_group_arn},
                },
            ),
        )
        allow(role, "lambda:InvokeFunction", self._functions.claimer.function_arn)
        self._functions.let_report_failures(role)
        return role

    def _let_claimer_switch(self) -> None:
        stack, claimer = cdk.Stack.of(self), self._functions.claimer
        # The group, not the tick in it: rights to single schedules are not supported, says a note in the EventBridge
        # Scheduler user guide. The sweep is all that there is besides.
        every = f"{self.group.schedule_group_name}/*"
        cdk.Validations.of(cast("iam.Role", claimer.role)).acknowledge(
            cdk.Acknowledgment(
                id="AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:scheduler:<AWS::Region>:<AWS::AccountId>:schedule/"
                f"{every}]",
                reason="Rights to single schedules are not supported; this group holds the tick and the sweep only.",
            )
        )
        for statement in (
            iam.PolicyStatement(
                actions=["scheduler:GetSchedule", "scheduler:UpdateSchedule"],
                resources=[stack.format_arn(service="scheduler", resource="schedule", resource_name=every)],
            ),
            # Who updates a schedule passes its role on.
            iam.PolicyStatement(
                actions=["iam:PassRole"],
                resources=[self._role.role_arn],
                conditions={"StringEquals": {"iam:PassedToService": "scheduler.amazonaws.com"}},
            ),
        ):
            claimer.add_to_role_policy(statement)
