-- forms.lua: what asynq must know of tasks, made in Redis. A fragment: local functions only. The messages of task ids of one length differ only in the
-- id, so one form serves them all.
local forms_before, forms_behind = {}, {}

-- forms_load reads argv[at]: how many lengths the task ids have, then for each length: the length, what a message has before the task's id, and what it has
-- after the id. It returns the place of what follows.
local function forms_load(argv, at)
  local behind = at + 1 + 3 * tonumber(argv[at])
  for f = at + 1, behind - 1, 3 do
    local size = tonumber(argv[f])
    forms_before[size], forms_behind[size] = argv[f + 1], argv[f + 2]
  end
  return behind
end

local function forms_message(task_id)
  local size = #task_id
  return forms_before[size] .. task_id .. forms_behind[size]
end
