local kf = require "dialects.kempnerforge"
return kf {
  world = 16,
  model = { dim = 64, n_layers = 2, n_heads = 8, n_kv_heads = 2, ffn_hidden_dim = 130,
    tie_embeddings = true, max_seq_len = 32,
  },
  train = {
    seq_len = 64, mixed_precision = "fp8",
    batch_size = 1,
  },
  distributed = { tp = 4,
    pp = 2, cp = 2,
    pp_schedule = "interleaved_1f1b", dp_shard = 4 },
  data = { pack_sequences = true },
  eval = { enabled = true },
}
