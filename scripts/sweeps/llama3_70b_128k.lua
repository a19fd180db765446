-- Finds the fastest way to share sequences of 131,072 tokens, for Llama 3.1 70B on 256 H100. The
-- ways are gathered keys, a ring, an exchange of tokens for heads (Ulysses), or both of the last
-- two. tp splits the 8 KV heads first, so tp times the number of ranks that exchange is at most 8.
-- Run it with tandem sweep scripts/sweeps/llama3_70b_128k.lua
return sweep {
  plan = "plans/llama3_70b_128k.lua",
  vary = {
    mesh = { dp_shard = { -1 }, tp = { 2, 4, 8 }, cp = { 4, 8, 16 } },
    parallel = { tp = { sequence = { false } }, cp = { mode = { "all_gather", "ring", "all_to_all" }, all_to_all = { 1, 2, 4 } } },
  },
  where = function(s)
    local exchange = s.mode == "all_to_all" and s.cp or s.all_to_all
    return (s.all_to_all == 1 or (s.mode == "ring" and s.all_to_all < s.cp)) and s.tp * exchange <= 8
  end,
}
