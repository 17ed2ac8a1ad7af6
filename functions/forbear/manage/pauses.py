"""Pauses of a whole tenant, and of everything.

Owns the locks that let no endpoint slip through: whoever makes one holds its tenant's row.
"""

from __future__ import annotations

from datetime import datetime

from forbear.api import ApiRequest, ApiResponse
from forbear.db import Connection, statement
from forbear.manage.asking import path_tenant, read_query
from forbear.manage.backend import Backend, one
from forbear.models.queries import Nothing
from forbear.models.readings import Pause, TenantPause


def pause_tenant(backend: Backend, request: ApiRequest) -> ApiResponse:
    """Hold the deliveries of all of a tenant's endpoints, those made later included."""
    return _tenant(backend, request, paused=True)


def resume_tenant(backend: Backend, request: ApiRequest) -> ApiResponse:
    """End a tenant's pause; endpoints that are paused for themselves stay so."""
    return _tenant(backend, request, paused=False)


def pause_everything(backend: Backend, request: ApiRequest) -> ApiResponse:
    """Claim nothing any more; what is in flight is not called back."""
    return _everything(backend, request, paused=True)


def resume_everything(backend: Backend, request: ApiRequest) -> ApiResponse:
    """Claim again; what is paused for itself stays so."""
    return _everything(backend, request, paused=False)


def _tenant(backend: Backend, request: ApiRequest, *, paused: bool) -> ApiResponse:
    read_query(Nothing, request)
    tenant = path_tenant(request)

    def work(connection: Connection) -> datetime | None:
        connection.execute(statement("tenant_row"), {"tenant": tenant})
        row = one(connection, statement("pause_tenant"), {"tenant": tenant, "paused": paused})
        paused_at: datetime | None = row["paused_at"]
        connection.execute(statement("pause_tenant_lanes"), {"tenant": tenant, "paused_at": paused_at})
        return paused_at

    paused_at = backend.change(work, repeatable=True)
    if not paused:
        backend.wake()
    return ApiResponse(200, TenantPause(tenant=tenant, paused=paused, paused_at=paused_at))


def _everything(backend: Backend, request: ApiRequest, *, paused: bool) -> ApiResponse:
    read_query(Nothing, request)
    row = backend.change(
        lambda connection: one(connection, statement("pause_everything"), {"paused": paused}), repeatable=True
    )
    if not paused:
        backend.wake()
    return ApiResponse(200, Pause(paused=paused, paused_at=row["paused_at"]))
