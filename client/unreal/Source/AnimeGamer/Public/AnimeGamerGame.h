#pragma once

#include "CoreMinimal.h"
#include "UObject/Object.h"

#include "AnimeGamerGame.generated.h"

class FAnimeGamerLink;
class UTexture2D;
namespace animegamer_unreal { class Game; }

/** A character's values, 0 to 100. */
USTRUCT(BlueprintType)
struct FAnimeGamerValues
{
	GENERATED_BODY()

	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	int32 Stamina = 50;
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	int32 Social = 50;
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	int32 Entertainment = 50;
};

/** What a turn does to the game; comes before its first picture. */
USTRUCT(BlueprintType)
struct FAnimeGamerState
{
	GENERATED_BODY()

	/** How much the pictures move: 1 (hardly) to 5 (a lot). */
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	int32 MotionLevel = 0;
	/** The values after this turn. */
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	FAnimeGamerValues Character;
	/** The values to put on the screen. */
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	FAnimeGamerValues Shown;
};

/** Somebody in a clip. */
USTRUCT(BlueprintType)
struct FAnimeGamerPerson
{
	GENERATED_BODY()

	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	FString Name;
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	FString Clothes;
};

/** One thing to tell the player: a code of PROTOCOL.md's section Answers and its fields; those that it lacks are empty. */
USTRUCT(BlueprintType)
struct FAnimeGamerAnswer
{
	GENERATED_BODY()

	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	FString Code;
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	FString Value;
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	TArray<FString> People;
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	TArray<FString> Words;
};

/** What an instruction was taken to mean, or what is seen in the picture that a game starts from. */
USTRUCT(BlueprintType)
struct FAnimeGamerUnderstood
{
	GENERATED_BODY()

	/** What changes in one line, for a player. Empty: nothing. */
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	FString Text;
	/** What was not understood, for a player; empty if all was. */
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	FString Notice;
	/** Both in codes, to say them in the player's language. */
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	TArray<FAnimeGamerAnswer> Answers;
	/** The first named first. */
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	TArray<FAnimeGamerPerson> People;
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	FString Motion;
	/** How much they move: 1 to 5. */
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	int32 MotionLevel = 0;
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	FString Place;
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	FString Hour;
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	FString Position;
	/** Words that ask for what cannot be drawn; the nearest is shown. */
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	TArray<FString> Unknown;
};

/** A finished turn in a game's list. */
USTRUCT(BlueprintType)
struct FAnimeGamerTurn
{
	GENERATED_BODY()

	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	int32 Turn = 0;
	UPROPERTY(BlueprintReadOnly, Category = "AnimeGamer")
	FString Instruction;
};

/** What a clip does when it was played once: stay on its last picture, begin again, go back and forth. */
UENUM(BlueprintType)
enum class EAnimeGamerPlayback : uint8
{
	Hold,
	Loop,
	PingPong
};

DECLARE_DYNAMIC_MULTICAST_DELEGATE_OneParam(FAnimeGamerOnOpened, const FString&, Token);
DECLARE_DYNAMIC_MULTICAST_DELEGATE_OneParam(FAnimeGamerOnOffers, const TArray<FString>&, Instructions);
DECLARE_DYNAMIC_MULTICAST_DELEGATE_OneParam(FAnimeGamerOnUnderstood, const FAnimeGamerUnderstood&, Understood);
DECLARE_DYNAMIC_MULTICAST_DELEGATE_OneParam(FAnimeGamerOnState, const FAnimeGamerState&, State);
DECLARE_DYNAMIC_MULTICAST_DELEGATE_TwoParams(FAnimeGamerOnProgress, float, Fraction, float, SecondsLeft);
DECLARE_DYNAMIC_MULTICAST_DELEGATE_ThreeParams(FAnimeGamerOnFrame, UTexture2D*, Texture, int32, Turn, int32, Index);
DECLARE_DYNAMIC_MULTICAST_DELEGATE_TwoParams(FAnimeGamerOnDone, int32, Turns, float, Seconds);
DECLARE_DYNAMIC_MULTICAST_DELEGATE_FourParams(FAnimeGamerOnError, const FString&, Code, const FString&, Text, const FString&, WhatToDo, const TArray<FAnimeGamerAnswer>&, Answers);
DECLARE_DYNAMIC_MULTICAST_DELEGATE_OneParam(FAnimeGamerOnClipEnd, int32, Turn);
DECLARE_DYNAMIC_MULTICAST_DELEGATE_OneParam(FAnimeGamerOnRewound, int32, Turns);
DECLARE_DYNAMIC_MULTICAST_DELEGATE_TwoParams(FAnimeGamerOnBranched, const FString&, Token, int32, Turns);
DECLARE_DYNAMIC_MULTICAST_DELEGATE_TwoParams(FAnimeGamerOnListed, const TArray<FAnimeGamerTurn>&, Turns, bool, bMore);
DECLARE_DYNAMIC_MULTICAST_DELEGATE(FAnimeGamerOnClosed);

/** One game on the server. The subsystem owns it; it outlives levels. */
UCLASS(BlueprintType)
class ANIMEGAMER_API UAnimeGamerGame : public UObject
{
	GENERATED_BODY()

public:
	/** Play a turn. While one runs this is refused, unless that one was cancelled: "say this instead". */
	UFUNCTION(BlueprintCallable, Category = "AnimeGamer")
	bool Say(const FString& Instruction);
	/** Stop the running turn: it ends with the error `cancelled`. */
	UFUNCTION(BlueprintCallable, Category = "AnimeGamer")
	void Cancel();
	/** Play a finished turn again: On State .. On Done. */
	UFUNCTION(BlueprintCallable, Category = "AnimeGamer")
	bool Replay(int32 Turn);
	/** Delete the turns after this one; 0 deletes all. */
	UFUNCTION(BlueprintCallable, Category = "AnimeGamer")
	void Rewind(int32 Turn);
	/** A second game that shares the turns up to this one. On Branched has its token: Resume it, here or in a game of another name. */
	UFUNCTION(BlueprintCallable, Category = "AnimeGamer")
	void Branch(int32 Turn);
	/** Up to 100 turns before this one, the newest last; 0: the newest of all. */
	UFUNCTION(BlueprintCallable, Category = "AnimeGamer")
	void List(int32 Before = 0);
	/** End the game for good. To go on later keep its token instead. */
	UFUNCTION(BlueprintCallable, Category = "AnimeGamer")
	void CloseGame();
	/** Go on with the game of this token, in place of this one. */
	UFUNCTION(BlueprintCallable, Category = "AnimeGamer")
	void Resume(const FString& InToken);
	/**
	 * A new game in place of this one, which goes on from a picture: the bytes of a PNG, JPEG or WebP file, at most 8 MiB, and what
	 * happens in it ("gently wave"). Only where the subsystem's Get Welcome has Starts From Pictures. On Opened comes when the server
	 * has looked at it; after On Error the game is the one before. Refused while a turn runs.
	 */
	UFUNCTION(BlueprintCallable, Category = "AnimeGamer")
	bool StartFromPicture(const TArray<uint8>& Picture, const FString& Motion);
	/** The same with the whole path of a file, as of one that Export Render Target has written. */
	UFUNCTION(BlueprintCallable, Category = "AnimeGamer")
	bool StartFromPictureFile(const FString& File, const FString& Motion);
	/** What the server saw in the picture that the game started from. */
	UFUNCTION(BlueprintPure, Category = "AnimeGamer")
	FAnimeGamerUnderstood GetSeen() const { return Seen; }
	/** What the server answers at once if it is said next; suggestions for the player. Only of servers that play ahead. */
	UFUNCTION(BlueprintPure, Category = "AnimeGamer")
	TArray<FString> GetOffers() const;
	/** Keep it with a saved game. Empty until On Opened. */
	UFUNCTION(BlueprintPure, Category = "AnimeGamer")
	FString GetToken() const { return Token; }
	/** What the next turn may be, the likeliest first: a server that plays ahead makes these ready before its own guesses. */
	UFUNCTION(BlueprintCallable, Category = "AnimeGamer")
	void Wish(const TArray<FString>& Instructions);

	/** The picture of this moment, held between turns; none before the first. It stays the same texture while the size does. */
	UFUNCTION(BlueprintPure, Category = "AnimeGamer")
	UTexture2D* GetTexture() const { return Texture; }
	/** The turn of that picture, from 1, and its number in the turn, from 0; 0 and -1 before the first. */
	UFUNCTION(BlueprintPure, Category = "AnimeGamer")
	int32 GetShownTurn() const { return ShownTurn; }
	UFUNCTION(BlueprintPure, Category = "AnimeGamer")
	int32 GetShownIndex() const { return ShownIndex; }
	/** While a clip is faded in: what to draw its texture over, with the weight Get Blend (0 to 1). */
	UFUNCTION(BlueprintPure, Category = "AnimeGamer")
	UTexture2D* GetUnderTexture() const { return UnderTexture; }
	UFUNCTION(BlueprintPure, Category = "AnimeGamer")
	float GetBlend() const { return Blend; }
	/**
	 * How clips that begin from now on are played. RestSeconds: how long the last picture stays before the clip comes again.
	 * FadeSeconds: in which a clip is faded into the next; 0: a cut. AtOnce: a clip begins with its first picture, although the one
	 * before was not played once.
	 */
	UFUNCTION(BlueprintCallable, Category = "AnimeGamer")
	void SetPlayback(EAnimeGamerPlayback InPlayback, float InRestSeconds = 0.0f, float InFadeSeconds = 0.0f, bool bAtOnce = false);
	/** Stop the clip, and go on with it. */
	UFUNCTION(BlueprintCallable, Category = "AnimeGamer")
	void SetPaused(bool bInPaused);

	/** Each Say and Replay has a ticket: that of the next one; that of the delegate that is called now (0: of none), and its turn. */
	int64 NextTicket() const;
	int64 Ticket() const;
	int64 TurnHeard() const;
	/** Cancel, of the turn with this ticket only; false: that turn has ended. */
	bool CancelTicket(int64 InTicket);

	UPROPERTY(BlueprintAssignable, Category = "AnimeGamer")
	FAnimeGamerOnOpened OnOpened;
	/** Get Offers has changed; empty: those before hold no longer. */
	UPROPERTY(BlueprintAssignable, Category = "AnimeGamer")
	FAnimeGamerOnOffers OnOffers;
	/** What the instruction was taken to mean, before On State; only of bundles that read everyday words. */
	UPROPERTY(BlueprintAssignable, Category = "AnimeGamer")
	FAnimeGamerOnUnderstood OnUnderstood;
	UPROPERTY(BlueprintAssignable, Category = "AnimeGamer")
	FAnimeGamerOnState OnState;
	UPROPERTY(BlueprintAssignable, Category = "AnimeGamer")
	FAnimeGamerOnProgress OnProgress;
	/** A picture's time has come: what is drawn in this tick has it. */
	UPROPERTY(BlueprintAssignable, Category = "AnimeGamer")
	FAnimeGamerOnFrame OnFrame;
	/** The turn is part of the game and on the server's disk. */
	UPROPERTY(BlueprintAssignable, Category = "AnimeGamer")
	FAnimeGamerOnDone OnDone;
	/** Answers: of `not_understood`, why the instruction was refused, in codes, to say it in the player's language; else empty. */
	UPROPERTY(BlueprintAssignable, Category = "AnimeGamer")
	FAnimeGamerOnError OnError;
	/** A turn's clip was played once, or was cut short by later ones. */
	UPROPERTY(BlueprintAssignable, Category = "AnimeGamer")
	FAnimeGamerOnClipEnd OnClipEnd;
	UPROPERTY(BlueprintAssignable, Category = "AnimeGamer")
	FAnimeGamerOnRewound OnRewound;
	UPROPERTY(BlueprintAssignable, Category = "AnimeGamer")
	FAnimeGamerOnBranched OnBranched;
	UPROPERTY(BlueprintAssignable, Category = "AnimeGamer")
	FAnimeGamerOnListed OnListed;
	UPROPERTY(BlueprintAssignable, Category = "AnimeGamer")
	FAnimeGamerOnClosed OnClosed;

private:
	friend class UAnimeGamerSubsystem;
	friend class FAnimeGamerLink;
	/** The game in the connection; none, with On Error, if the settings are refused or the game instance has ended. */
	animegamer_unreal::Game* Find();
	void ShowPictures();

	UPROPERTY(Transient)
	TObjectPtr<UTexture2D> Texture;
	UPROPERTY(Transient)
	TObjectPtr<UTexture2D> UnderTexture;
	float Blend = 1.0f;
	int32 ShownTurn = 0, ShownIndex = -1;
	EAnimeGamerPlayback Playback = EAnimeGamerPlayback::Hold;
	float RestSeconds = 0.0f, FadeSeconds = 0.0f;
	bool bClipsAtOnce = false, bPaused = false;
	FString Token;
	FAnimeGamerUnderstood Seen;
	TSharedPtr<FAnimeGamerLink> Link;
};
