"""One time step of the ball in the maze: MuJoCo's soft contact, in closed form for this one scene.

The ball has two degrees of freedom of equal mass, and contacts are frictionless, so MuJoCo's convex contact problem
is a minimisation over the plane: find the acceleration nearest to the unconstrained one, where each wall charges a
quadratic price for accelerating into it beyond a limit. In outline, for velocity v (clipped first) and action a:

1. unconstrained acceleration a0 = (gear a - damping v) / m;
2. the three walls the ball could touch, from the quarter of the cell its centre is in;
3. per wall: impedance d from the depth, acceleration limit from depth and approach speed, price w = d / (1 - d);
4. argmin over acc of |acc - a0|^2 + sum_i w_i max(0, q_i.acc - limit_i)^2, q_i pointing into the wall, by Newton;
5. v' = v + dt acc m / (m + dt damping), p' = p + dt v'.

Steps 2-4 work in coordinates mirrored so that both cell sides near the ball lie in positive direction: then the
directions into the walls are (1, 0), (0, 1) and the unit vector towards the corner.
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from hyper_rl.envs.maze_layout import WALL_ABOVE_OR_BELOW, WALL_ACROSS_CORNER, WALL_BESIDE, MazeLayout

BALL_RADIUS = 0.1
BALL_MASS = 1000.0 * 4.0 / 3.0 * math.pi * BALL_RADIUS**3
DAMPING = 1.0
GEAR = 100.0
TIME_STEP = 0.01
MAX_SPEED = 5.0

# Both geoms carry a margin of 0.002. MuJoCo adds the two from version 3.5 on (earlier versions took the larger one).
CONTACT_MARGIN = 0.004
CONTACT_RANGE = BALL_RADIUS + CONTACT_MARGIN

# MuJoCo's solref and solimp at their defaults.
TIME_CONSTANT = 0.02
IMPEDANCE_MIN, IMPEDANCE_MAX, IMPEDANCE_WIDTH = 0.9, 0.95, 0.001
STIFFNESS = 1.0 / (IMPEDANCE_MAX * TIME_CONSTANT) ** 2
CONTACT_DAMPING = 2.0 / (IMPEDANCE_MAX * TIME_CONSTANT)

# MuJoCo's Euler step treats joint damping implicitly, which shortens the time step of the velocity by this factor.
VELOCITY_GAIN = TIME_STEP * BALL_MASS / (BALL_MASS + TIME_STEP * DAMPING)

NEWTON_STEPS = 4

Scalar: TypeAlias = Float[Array, ""]


class Ball(NamedTuple):
    """Separate scalars, not a vector of four: batched, each is a contiguous array, and a step runs 2-4 times faster."""

    x: Scalar
    y: Scalar
    vx: Scalar
    vy: Scalar


class Contact(NamedTuple):
    """What one wall asks of the acceleration `into`, the component that points into it."""

    price: Scalar
    """w = d / (1 - d), or 0 where there is no wall in reach."""
    limit: Scalar
    """Accelerations into the wall beyond this are charged for."""


class Contacts(NamedTuple):
    """The three candidates, in mirrored coordinates: walls towards +x and +y, and the corner towards (cx, cy)."""

    beside: Contact
    above_or_below: Contact
    corner: Contact
    cx: Scalar
    cy: Scalar


def _contact(gap: Scalar, speed_into: Scalar, wall: Bool[Array, ""]) -> Contact:
    """MuJoCo's impedance and reference acceleration for the distance `gap` between ball centre and wall."""
    depth = CONTACT_RANGE - gap
    z = jnp.minimum(depth * (1.0 / IMPEDANCE_WIDTH), 1.0)
    sigmoid = jnp.where(z <= 0.5, 2.0 * z * z, 1.0 - 2.0 * (1.0 - z) * (1.0 - z))
    impedance = IMPEDANCE_MIN + (IMPEDANCE_MAX - IMPEDANCE_MIN) * sigmoid
    price = jnp.where(wall & (depth > 0.0), impedance / (1.0 - impedance), 0.0)
    return Contact(price, -CONTACT_DAMPING * speed_into - STIFFNESS * impedance * depth)


def minimise_acceleration(
    ax0: Scalar, ay0: Scalar, contacts: Contacts, steps: int = NEWTON_STEPS
) -> tuple[Scalar, Scalar]:
    """Newton on the piecewise quadratic: each step solves the 2x2 system of the walls now pushed beyond their limit."""
    beside, above, corner, cx, cy = contacts
    ax, ay = ax0, ay0
    for _ in range(steps):
        wx = jnp.where(ax > beside.limit, beside.price, 0.0)
        wy = jnp.where(ay > above.limit, above.price, 0.0)
        wc = jnp.where(cx * ax + cy * ay > corner.limit, corner.price, 0.0)
        wcx, wcy = wc * cx, wc * cy
        hxx, hyy, hxy = 1.0 + wx + wcx * cx, 1.0 + wy + wcy * cy, wcx * cy
        bx = ax0 + wx * beside.limit + wcx * corner.limit
        by = ay0 + wy * above.limit + wcy * corner.limit
        scale = 1.0 / (hxx * hyy - hxy * hxy)
        ax, ay = (hyy * bx - hxy * by) * scale, (hxx * by - hxy * bx) * scale
    return ax, ay


class Quadrant(NamedTuple):
    """The quarter of a cell the ball's centre is in."""

    sx: Scalar
    """+1 where the nearer side of the cell is to the right, else -1."""
    sy: Scalar
    """+1 where the nearer side is above, else -1."""
    gap_x: Scalar
    gap_y: Scalar
    beside: Bool[Array, ""]
    above_or_below: Bool[Array, ""]
    corner: Bool[Array, ""]


def locate_quadrant(layout: MazeLayout, x: Scalar, y: Scalar) -> Quadrant:
    from_left, from_top = x + layout.columns / 2, layout.rows / 2 - y
    column, row = jnp.floor(from_left), jnp.floor(from_top)
    side_column, side_row = jnp.floor(from_left + 0.5), jnp.floor(from_top + 0.5)
    sx, sy = 2.0 * (side_column - column) - 1.0, 1.0 - 2.0 * (side_row - row)
    table = layout.walls_near_quadrant
    index = ((row + side_row) * table.shape[1] + (column + side_column)).astype(jnp.int32)
    bits = jnp.asarray(table.ravel()).at[index].get(mode="clip")
    return Quadrant(
        sx=sx,
        sy=sy,
        # Wall coordinate minus position: the wall's is exact, so the gap keeps every digit of a float32 position,
        # while `side_column - from_left` would lose those that adding the half width rounded away.
        gap_x=sx * ((side_column - layout.columns / 2) - x),
        gap_y=sy * ((layout.rows / 2 - side_row) - y),
        beside=(bits & WALL_BESIDE) != 0,
        above_or_below=(bits & WALL_ABOVE_OR_BELOW) != 0,
        corner=(bits & WALL_ACROSS_CORNER) != 0,
    )


def move_ball(layout: MazeLayout, ball: Ball, force_x: Scalar, force_y: Scalar) -> Ball:
    """The ball one time step later, pushed by a force in motor units. Its centre must be in a free cell."""
    old_vx, old_vy = jnp.clip(ball.vx, -MAX_SPEED, MAX_SPEED), jnp.clip(ball.vy, -MAX_SPEED, MAX_SPEED)
    near = locate_quadrant(layout, ball.x, ball.y)
    vx, vy = near.sx * old_vx, near.sy * old_vy
    # The floor only guards against 0/0: a ball centred on a corner would be a whole radius inside the wall.
    to_corner = jnp.maximum(jnp.sqrt(near.gap_x * near.gap_x + near.gap_y * near.gap_y), 1e-6)
    cx, cy = near.gap_x / to_corner, near.gap_y / to_corner
    contacts = Contacts(
        beside=_contact(near.gap_x, vx, near.beside),
        above_or_below=_contact(near.gap_y, vy, near.above_or_below),
        corner=_contact(to_corner, cx * vx + cy * vy, near.corner),
        cx=cx,
        cy=cy,
    )
    ax, ay = minimise_acceleration(
        near.sx * _free_acceleration(force_x, old_vx), near.sy * _free_acceleration(force_y, old_vy), contacts
    )
    new_vx, new_vy = old_vx + VELOCITY_GAIN * (near.sx * ax), old_vy + VELOCITY_GAIN * (near.sy * ay)
    return Ball(ball.x + TIME_STEP * new_vx, ball.y + TIME_STEP * new_vy, new_vx, new_vy)


def _free_acceleration(force: Scalar, velocity: Scalar) -> Scalar:
    return (GEAR / BALL_MASS) * jnp.clip(force, -1.0, 1.0) - (DAMPING / BALL_MASS) * velocity
