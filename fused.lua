return require 'dialects.automodel' { world_size = 2, seq_length = 16, model = require 'models.llama' 'tiny',
distributed = { strategy = 'fsdp2', tp_size = 2 } }
