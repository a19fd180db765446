-- KempnerForge with experts: the same, under a name of its own, because predictions of it are off by more (docs/accuracy.md).
local profile = {}
for key, value in pairs(require "runtimes.kempnerforge") do profile[key] = value end
profile.name = "kempnerforge_experts"
return profile
