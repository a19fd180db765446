-- torchtitan: FSDP2 and DTensor; eager, or blocks compiled; AdamW by lists of tensors. Its launcher asks for
-- expandable segments.
return require "runtimes.eager" { name = "torchtitan", expandable = true }
