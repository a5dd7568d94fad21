package dispatch

// unheard are answers of doubles that no cell meets, and why. With a gateway before it, of that one alone.
var unheard = map[string]string{
	"invalid":                 "payments here are as the gateway wants them",
	"not-found":               "of look-ups, and of second steps",
	"no-key":                  "each call has its key",
	"failed":                  "of a payment that fails later",
	"captured":                "of a second step",
	"funded":                  "of a second step",
	"canceled-ok":             "of a cancellation, which is an operator's act",
	"gocardless/v1 paid":      "of a payment that has moved on: a repeat gets a conflict",
	"paypal/payouts-v1 paid":  "of a payment that has moved on: a repeat gets an error",
	"qonto/v2 paid":           "of a payment that has moved on: a repeat gets the first answer",
	"razorpay/v1 paid":        "of a payment that has moved on: keys are not trusted for so long",
	"wise/v1 paid":            "of a transfer that was funded",
	"wise/v1 pending":         "of a transfer that was funded",
	"wise/v1 bad-key":         "each key is a UUID",
	"klarna/v1 bad-key":       "each key is a UUID",
	"checkout/v1 running-409": "nothing is sent again after a lost answer",
	"checkout/v1 running-429": "nothing is sent again after a lost answer",
	"qonto/v2 conflict":       "nothing is sent again after a lost answer",

	"worldpay/payouts-v1 paid":     "of a payout that has moved on: nothing is sent again after a lost answer",
	"worldpay/payouts-v1 again":    "nothing is sent again after a lost answer",
	"worldpay/payouts-v1 conflict": "nothing is sent again after a lost answer",
}

// expected is how each pack's jobs have to end, by what the gateway's documents say and by what Spillway may conclude from an answer. It is written from
// these, and not from a run. The columns are the ends without a crash, with the worker dead before the first write, and after it; a fourth is that
// with the worker dead after the second write, where it differs from all of these.
//
// After a worker's death nobody knows whether it had called, so a decline that is no 402 is no refusal any more. Where a repeat is executed again,
// nothing is sent after a lost answer. A repeat that is marked tells what became of the first call, also where it is a decline.
//
// Options are those of the double's fates, and:
//
//	saved-4xx=…  what the double saves of a class of answers, where the documents don't say
//	wait=late    the repeat goes out as late as the key is trusted
//	wait=past    the gateway has forgotten the key by then
//	wait=window  a tenth of the longest window passes
//	id=long      no fate: an id of 200 characters, in front of a gateway that is well
//	warm=1       another job has met the fate before, so this one meets the next of several answers
var expected = map[string]string{
	// A 500 is saved, 402s and executed 400s too, and repeats are marked.
	"stripe/v1": `
		cut-before-charge                          done     done     done
		cut-after-charge                           done     done     done
		slow delay=2m                              done     done     done
		decline                                    refused  refused  refused
		429 reason=global-rate                     done     done     done
		429 reason=endpoint-rate                   done     done     done
		429 reason=global-concurrency              done     done     done
		429 reason=endpoint-concurrency            done     done     done
		429 reason=resource-specific               done     done     done
		expired-token                              done     done     done
		unavailable                                done     done     done
		5xx                                        unknown  unknown  unknown
		key-too-long calls=all                     refused  unknown  unknown
		key-too-long id=long                       done     done     done
		saved-500 charge=true                      unknown  unknown  unknown
		saved-500 charge=false                     unknown  unknown  unknown
		key-forgotten wait=late                    unknown  unknown  unknown
		key-forgotten wait=past                    unknown  unknown  unknown
		other-body                                 unknown  unknown  unknown
		2xx-later                                  accepted accepted accepted
		2xx-action                                 refused  refused  refused
		saved-decline                              refused  refused  refused
		half-saved-4xx save=answer                 refused  unknown  unknown
		half-saved-4xx save=nothing                refused  unknown  done
		scope                                      unknown  unknown  unknown
		hint-against-status reason=hint-stop       unknown  unknown  unknown
		hint-against-status reason=hint-stop charge=true  unknown unknown unknown
		hint-against-status reason=hint-go         done     done     done
		limits-in-disguise                         done     done     done
		long-windows                               done     done     done
		not-found-yet                              done     done     done
		two-steps                                  refused  refused  refused
		guess                                      refused  unknown  refused
	`,
	// What failed has charged nothing and is executed again; what succeeded is shown as it is now.
	"stripe/v2": `
		cut-before-charge                          done     done     done
		cut-after-charge                           done     done     done
		slow delay=2m running=in-use               done     done     done
		slow delay=2m running=wait                 done     done     done
		decline                                    refused  refused  done
		429 reason=global-rate                     done     done     done
		429 reason=endpoint-rate                   done     done     done
		expired-token                              done     done     done
		unavailable                                done     done     done
		5xx                                        done     done     done
		key-forgotten wait=late                    unknown  unknown  unknown
		key-forgotten wait=past                    unknown  unknown  unknown
		key-too-long calls=all                     refused  unknown  unknown
		key-too-long id=long                       done     done     done
		other-body                                 unknown  unknown  unknown
		2xx-later                                  accepted accepted accepted
		2xx-action                                 refused  refused  refused
		state-moves                                unknown  unknown  unknown
		scope                                      done     done     done
	`,
	// A 5xx without transient-error may have charged, and must not be repeated. 704 is "processed or in progress".
	"adyen/v72": `
		cut-before-charge                          done     done     done
		cut-after-charge                           done     done     done
		slow delay=2m running=704-409-transient    done     done     done
		slow delay=2m running=704-422-transient    done     done     done
		decline                                    refused  refused  refused
		429                                        done     done     done
		expired-token                              done     done     done
		unavailable                                unknown  unknown  done
		5xx saved-5xx=answer                       unknown  unknown  unknown
		5xx saved-5xx=state                        unknown  unknown  done
		key-forgotten wait=late                    unknown  unknown  unknown
		key-forgotten wait=past                    unknown  unknown  unknown
		life-shrank wait=late                      unknown  unknown  unknown
		life-shrank wait=past                      unknown  unknown  unknown
		key-too-long calls=all                     refused  unknown  unknown
		key-too-long id=long                       done     done     done
		409-or                                     unknown  unknown  unknown
		409-or warm=1                              unknown  unknown  unknown
		running-elsewhere delay=2m running=704-422-transient  done    done    done
		running-elsewhere delay=2m running=704-422            unknown unknown unknown
		2xx-later                                  accepted accepted accepted
		2xx-no                                     refused  refused  refused
		2xx-action                                 refused  refused  refused
		scope                                      unknown  unknown  unknown
		store-down                                 done     done     done
		hint-against-status reason=hint-stop saved-5xx=answer  unknown unknown unknown
		hint-against-status reason=hint-stop saved-5xx=state   unknown unknown done
		hint-against-status reason=hint-go         done     done     done
		limits-in-disguise                         done     done     done
	`,
	// The present state is shown, or 915234 where nothing was stored.
	"braintree/v1": `
		cut-before-charge                          done     done     done
		cut-after-charge                           done     done     done
		slow delay=2m                              done     done     done
		decline                                    refused  unknown  unknown
		429                                        done     done     done
		expired-token                              done     done     done
		unavailable                                done     done     done
		5xx                                        unknown  unknown  unknown
		5xx charge=true                            done     done     done
		key-forgotten wait=late                    unknown  unknown  unknown
		key-forgotten wait=past                    unknown  unknown  unknown
		key-too-long calls=all                     refused  unknown  unknown
		key-too-long id=long                       done     done     done
		running-elsewhere delay=2m                 done     done     done
		other-body                                 unknown  unknown  unknown
		2xx-no                                     refused  unknown  unknown
		2xx-later                                  accepted accepted accepted
		state-moves                                unknown  unknown  unknown
		limits-in-disguise                         done     done     done
		guess                                      refused  unknown  unknown
	`,
	// Only a 2xx is kept: after a 5xx or a lost answer nothing is sent again.
	"checkout/v1": `
		cut-before-charge                          unknown  unknown  unknown
		cut-after-charge                           unknown  unknown  unknown
		slow delay=2m                              unknown  unknown  unknown
		decline                                    refused  unknown  unknown
		429                                        done     unknown  unknown
		expired-token                              done     unknown  unknown
		unavailable                                unknown  unknown  unknown
		5xx                                        unknown  unknown  unknown
		5xx-not-saved                              unknown  unknown  unknown
		key-forgotten wait=late                    unknown  unknown  unknown
		key-forgotten wait=past                    unknown  unknown  unknown
		life-shrank wait=late                      unknown  unknown  unknown
		life-shrank wait=past                      unknown  unknown  unknown
		running-elsewhere delay=2m                 unknown  unknown  unknown
		2xx-later                                  accepted unknown  unknown
		2xx-no                                     refused  unknown  unknown
		saved-decline                              refused  unknown  unknown
	`,
	// Never paid at once; a repeat gets a conflict that names what was created.
	"gocardless/v1": `
		cut-before-charge                          accepted accepted accepted
		cut-after-charge                           accepted accepted accepted
		slow delay=2m running=conflict-running     accepted accepted accepted
		slow delay=2m running=wait                 accepted accepted accepted
		decline                                    refused  unknown  accepted
		429                                        accepted accepted accepted
		expired-token                              accepted accepted accepted
		unavailable                                accepted accepted accepted
		5xx                                        accepted accepted accepted
		5xx charge=true                            accepted accepted accepted
		life-unpublished wait=late                 unknown  unknown  unknown
		life-unpublished wait=past                 unknown  unknown  unknown
		409-done                                   accepted accepted accepted
		other-body-replays                         unknown  accepted accepted
		2xx-later                                  accepted accepted accepted
		long-windows wait=window                   accepted accepted accepted
	`,
	// Executed once for each key; a 403 after a lost call may mean captured already.
	"klarna/v1": `
		cut-before-charge                          done     done     done
		cut-after-charge                           done     done     done
		slow delay=2m running=conflict             done     done     done
		slow delay=2m running=wait                 done     done     done
		decline saved-4xx=answer                   refused  unknown  unknown
		decline saved-4xx=nothing                  refused  unknown  done
		429                                        done     done     done
		expired-token                              done     done     done
		unavailable                                done     done     done
		5xx                                        done     done     done
		5xx charge=true                            done     done     done
		key-forgotten wait=late                    unknown  unknown  unknown
		key-forgotten wait=past                    unknown  unknown  unknown
		other-body-replays                         theirs   theirs   theirs
	`,
	// A used key gets a conflict, whatever its first call came to.
	"mangopay/v2": `
		cut-before-charge                          done     done     done     unknown
		cut-after-charge                           unknown  unknown  unknown
		slow delay=2m                              unknown  unknown  unknown
		decline                                    refused  refused  unknown
		429                                        done     done     done     unknown
		expired-token                              done     done     done     unknown
		unavailable                                done     done     done     unknown
		5xx                                        unknown  unknown  unknown
		5xx charge=true                            unknown  unknown  unknown
		key-forgotten wait=late                    unknown  unknown  unknown
		key-forgotten wait=past                    unknown  unknown  unknown
		key-too-long calls=all                     refused  unknown  unknown
		key-too-long id=long                       done     done     unknown
		409-blocked                                unknown  unknown  unknown
		2xx-later                                  accepted accepted unknown
		2xx-no                                     refused  refused  unknown
		saved-decline                              refused  refused  unknown
		long-windows wait=window                   done     done     done     unknown
	`,
	// Keys live an hour; a repeat is marked; other parameters get a plain 400.
	"mollie/v2": `
		cut-before-charge                          done     done     done
		cut-after-charge                           done     done     done
		slow delay=2m                              done     done     done
		decline saved-4xx=answer                   refused  unknown  unknown
		decline saved-4xx=nothing                  refused  unknown  done
		429                                        done     done     done
		expired-token                              done     done     done
		unavailable                                done     done     done
		5xx saved-5xx=answer                       unknown  unknown  unknown
		5xx saved-5xx=nothing                      done     done     done
		5xx charge=true saved-5xx=answer           unknown  unknown  unknown
		key-forgotten wait=late                    unknown  unknown  unknown
		key-forgotten wait=past                    unknown  unknown  unknown
		other-body                                 unknown  unknown  unknown
		2xx-later                                  accepted accepted accepted
	`,
	// The present state is shown: a decline on a repeat may be a later one.
	"paypal/orders-v2": `
		cut-before-charge                          done     done     done
		cut-after-charge                           done     done     done
		slow delay=2m running=in-progress          done     done     done
		slow delay=2m running=wait                 done     done     done
		decline saved-4xx=answer                   refused  unknown  unknown
		decline saved-4xx=nothing                  refused  unknown  done
		429                                        done     done     done
		expired-token                              done     done     done
		unavailable                                done     done     done
		5xx                                        done     done     done
		5xx charge=true                            done     done     done
		key-forgotten wait=late                    unknown  unknown  unknown
		key-forgotten wait=past                    unknown  unknown  unknown
		key-too-long calls=all                     refused  unknown  unknown
		key-too-long id=long                       line     line     line
		2xx-later                                  accepted accepted accepted
		2xx-no                                     refused  unknown  unknown
		2xx-action                                 refused  unknown  unknown
		state-moves                                done     done     done
		scope                                      done     done     done
		not-found-yet                              done     done     done
		two-steps                                  unknown  unknown  unknown
		guess                                      unknown  unknown  unknown
	`,
	"paypal/payments-v2": `
		cut-before-charge                          done     done     done
		cut-after-charge                           done     done     done
		slow delay=2m                              done     done     done
		decline saved-4xx=answer                   refused  unknown  unknown
		decline saved-4xx=nothing                  refused  unknown  done
		429                                        done     done     done
		expired-token                              done     done     done
		unavailable                                done     done     done
		5xx                                        done     done     done
		5xx charge=true                            done     done     done
		key-forgotten wait=late                    unknown  unknown  unknown
		key-forgotten wait=past                    unknown  unknown  unknown
		key-too-long calls=all                     refused  unknown  unknown
		key-too-long id=long                       line     line     line
		2xx-later                                  accepted accepted accepted
		2xx-no                                     refused  unknown  unknown
		state-moves                                done     done     done
		scope                                      done     done     done
		not-found-yet                              done     done     done
		guess                                      unknown  unknown  unknown
	`,
	// Never paid at once; a repeat gets an error with a link to the first.
	"paypal/payouts-v1": `
		cut-before-charge                          accepted accepted accepted
		cut-after-charge                           accepted accepted accepted
		slow delay=2m running=duplicate            accepted accepted accepted
		slow delay=2m running=wait                 accepted accepted accepted
		decline                                    refused  unknown  accepted
		429                                        accepted accepted accepted
		expired-token                              accepted accepted accepted
		unavailable                                accepted accepted accepted
		5xx                                        accepted accepted accepted
		5xx charge=true                            accepted accepted accepted
		key-forgotten wait=late                    unknown  unknown  unknown
		key-forgotten wait=past                    unknown  unknown  unknown
		key-too-long calls=all                     refused  unknown  unknown
		key-too-long id=long                       accepted accepted accepted
		2xx-later                                  accepted accepted accepted
		2xx-later warm=1                           unknown  unknown  accepted
		409-done                                   accepted accepted accepted
	`,
	// Only what succeeded is kept, and given again whatever the body says.
	"qonto/v2": `
		cut-before-charge                          unknown  unknown  unknown
		cut-after-charge                           unknown  unknown  unknown
		slow delay=2m                              unknown  unknown  unknown
		decline                                    refused  unknown  unknown
		429 reason=requests                        accepted unknown  unknown
		429 reason=429-unauthorised                accepted unknown  unknown
		expired-token                              accepted unknown  unknown
		unavailable                                unknown  unknown  unknown
		5xx                                        unknown  unknown  unknown
		5xx-not-saved                              unknown  unknown  unknown
		key-forgotten wait=late                    unknown  unknown  unknown
		key-forgotten wait=past                    unknown  unknown  unknown
		other-body-replays                         unknown  unknown  unknown
		2xx-later                                  accepted unknown  unknown
		2xx-no                                     refused  unknown  unknown
		long-windows wait=window                   accepted unknown  unknown
	`,
	// Neither the life of a key nor what is saved after an error is published: at most one repeat of a 500.
	"razorpay/v1": `
		cut-before-charge                          accepted accepted accepted
		cut-after-charge saved-2xx=answer          accepted accepted accepted
		cut-after-charge saved-2xx=state           accepted accepted accepted
		slow delay=2m running=conflict             accepted accepted accepted
		slow delay=2m running=busy                 unknown  unknown  unknown
		slow delay=2m running=wait                 accepted accepted accepted
		decline saved-4xx=answer                   refused  unknown  unknown
		decline saved-4xx=nothing                  refused  unknown  accepted
		429                                        accepted accepted accepted
		expired-token                              accepted accepted accepted
		unavailable                                accepted accepted accepted
		5xx saved-5xx=answer                       unknown  unknown  unknown
		5xx saved-5xx=state                        accepted unknown  accepted
		5xx charge=true saved-5xx=answer           unknown  unknown  unknown
		5xx charge=true saved-5xx=state            done     unknown  done
		life-unpublished wait=late                 unknown  unknown  unknown
		life-unpublished wait=past                 unknown  unknown  unknown
		key-too-long calls=all                     refused  unknown  unknown
		key-too-long id=long                       accepted accepted accepted
		other-body                                 unknown  unknown  unknown
		2xx-later                                  accepted accepted accepted
		saved-decline                              refused  unknown  unknown
	`,
	// The life of a key is not published; TEMPORARY_ERROR is no decline, whatever its category says.
	"square/v2": `
		cut-before-charge                          done     done     done
		cut-after-charge                           done     done     done
		slow delay=2m running=conflict             done     done     done
		slow delay=2m running=wait                 done     done     done
		decline saved-4xx=nothing                  refused  refused  done
		decline saved-4xx=answer                   refused  refused  refused
		429                                        done     done     done
		expired-token                              done     done     done
		unavailable                                done     done     done
		5xx                                        done     done     done
		5xx charge=true                            done     done     done
		life-unpublished wait=late                 unknown  unknown  unknown
		life-unpublished wait=past                 unknown  unknown  unknown
		key-too-long calls=all                     refused  unknown  unknown
		key-too-long id=long                       done     done     done
		other-body                                 unknown  unknown  unknown
		2xx-later                                  accepted accepted accepted
		hint-against-status                        done     done     done
		guess delay=2m running=conflict            done     done     done
		guess delay=2m running=wait                done     done     done
	`,
	// A created transfer has moved no money: never done.
	"wise/v1": `
		cut-before-charge                          accepted accepted accepted
		cut-after-charge                           accepted accepted accepted
		slow delay=2m running=conflict             accepted accepted accepted
		slow delay=2m running=wait                 accepted accepted accepted
		decline                                    refused  unknown  accepted
		429 reason=second                          accepted accepted accepted
		429 reason=minute                          accepted accepted accepted
		expired-token                              accepted accepted accepted
		unavailable                                accepted accepted accepted
		5xx                                        accepted accepted accepted
		life-unpublished wait=late                 unknown  unknown  unknown
		life-unpublished wait=past                 unknown  unknown  unknown
		2xx-later                                  accepted accepted accepted
		two-steps                                  accepted accepted accepted
	`,
	// Neither the life of a key nor what a repeat of a failure gets is published: nothing is sent again after a 5xx or a lost answer.
	"worldpay/payouts-v1": `
		cut-before-charge                          unknown  unknown  unknown
		cut-after-charge                           unknown  unknown  unknown
		slow delay=2m                              unknown  unknown  unknown
		decline                                    refused  unknown  unknown
		429                                        accepted unknown  unknown
		expired-token                              accepted unknown  unknown
		unavailable                                unknown  unknown  unknown
		5xx                                        unknown  unknown  unknown
		5xx charge=true                            unknown  unknown  unknown
		life-unpublished wait=late                 unknown  unknown  unknown
		life-unpublished wait=past                 unknown  unknown  unknown
		key-too-long calls=all                     refused  unknown  unknown
		key-too-long id=long                       accepted unknown  unknown
		2xx-later                                  accepted unknown  unknown
		not-found-yet                              unknown  unknown  unknown
	`,
	// No key: nothing is sent again after the write.
	"worldpay/v1": `
		cut-before-charge                          unknown  unknown  unknown
		cut-after-charge                           unknown  unknown  unknown
		slow delay=2m                              unknown  unknown  unknown
		decline                                    refused  unknown  unknown
		429                                        done     unknown  unknown
		expired-token                              done     unknown  unknown
		unavailable                                unknown  unknown  unknown
		5xx                                        unknown  unknown  unknown
		5xx charge=true                            unknown  unknown  unknown
		2xx-later                                  unknown  unknown  unknown
		2xx-no                                     refused  unknown  unknown
		2xx-action                                 refused  unknown  unknown
		not-found-yet                              unknown  unknown  unknown
		two-steps                                  unknown  unknown  unknown
	`,
}
