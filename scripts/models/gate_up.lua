-- A gated MLP whose gate and up projections are one weight: require "models.gate_up" (dim, hidden, names, init). names:
-- the names of the fused projection and of the output projection. tp splits the features of gate and of up separately.
local nn = require "tandem.nn"

return function(dim, hidden, names, out_init)
  local both, down = names[1], names[2]
  return nn.module {
    [down] = nn.linear(hidden, dim, { init = out_init }),
    [both] = nn.linear(dim, 2 * hidden, { segments = 2 }),
    forward = function(m, x)
      local y = m[both](x)
      return m[down](nn.silu(nn.segment(y, 1)) * nn.segment(y, 2))
    end,
  }
end
